// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "codec/chunk_plan.h"
#include "hevc/decoder.h"
#include "kvcodec/result.h"

namespace kvcodec {

// Chooses the coding of a symbols picture, encodes it into content.stored and frees its samples;
// fills coding, bytes and checksums of any picture. Deterministic.
void store_picture(uint32_t tokens, format::Picture& picture, PictureContent& content);

// The pictures of one object, to load.
struct PicturesToLoad {
  const format::Header* header;
  std::span<const std::byte> object;
  std::span<PictureContent> contents;  // one a picture
  Status status = ok_status();         // out: corrupt names the first faulty picture
};
// Checks the payloads of all pictures and decodes their samples (stride: tokens), on up to
// `threads` threads. The pictures of all objects reach the decoder together: the more the faster.
void load_pictures(std::span<PicturesToLoad> objects, int threads);

}  // namespace kvcodec
