// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvcodec {

// XXH3 64 bit, seed 0: the format's checksum.
uint64_t checksum64(std::span<const std::byte> bytes);

}  // namespace kvcodec
