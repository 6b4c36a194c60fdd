// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "codec/chunk_plan.h"
#include "codec/picture_coder.h"
#include "kvcodec/result.h"

namespace kvcodec {

// The object of a header and its pictures, which are stored first, on up to `threads` threads.
// Frees what it has copied. invalid_argument where the header would be too long.
Result<std::vector<std::byte>> write_object(format::Header& header,
                                            std::span<PictureContent> contents, int threads,
                                            const EncodePictures& encode = encode_on_host);

}  // namespace kvcodec
