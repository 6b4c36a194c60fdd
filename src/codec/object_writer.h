// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "codec/chunk_plan.h"
#include "codec/picture_coder.h"
#include "kvcodec/result.h"

namespace kvcodec {

struct ObjectToWrite {
  format::Header* header;
  std::span<PictureContent> contents;  // one a picture
};
// The object of each header and its pictures, which are stored first, those of all objects
// together, on up to `threads` threads. Frees what it has copied. invalid_argument where a header
// would be too long; an error of `encode` is that of every object.
std::vector<Result<std::vector<std::byte>>> write_objects(
    std::span<const ObjectToWrite> objects, int threads,
    const EncodePictures& encode = encode_on_host);

}  // namespace kvcodec
