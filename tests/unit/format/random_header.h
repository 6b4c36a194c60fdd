// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "format/header.h"

namespace kvcodec::format {

// A header that read_header accepts, small, with every field drawn at random; the pictures' sizes
// and checksums are invented. Equal seeds give equal headers.
Header random_header(uint32_t seed);

// The same with a fixed small shape, so that tests know where its fields are: int8, f16, 2 layers
// of 2 heads of 4, 6 tokens, neox rope over 4, 1 sink token, 3 escapes, 2 pictures.
Header example_header();

// Makes the checksum of a header right again after its bytes were changed.
void fix_checksum(std::vector<std::byte>& header);

}  // namespace kvcodec::format
