// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "codec/chunk_plan.h"
#include "hevc/decoder.h"
#include "hevc/encoder.h"
#include "kvcodec/result.h"

namespace kvcodec {

// Encodes all pictures, on up to `threads` threads; as hevc::encode_pictures, which is the default.
using EncodePictures = std::function<Status(std::span<hevc::EncodeJob> jobs, int threads)>;
Status encode_on_host(std::span<hevc::EncodeJob> jobs, int threads);

// The pictures of one chunk, to store.
struct PicturesToStore {
  uint32_t tokens;
  std::span<format::Picture> pictures;
  std::span<PictureContent> contents;  // one a picture
};
// Chooses the coding of the pictures of symbols, encodes them into content.stored, those of all
// chunks at once on up to `threads` threads, and frees their samples; fills coding, bytes and
// checksums of all. Deterministic, whatever the number of threads and chunks. Errors are those of
// `encode`.
Status store_pictures(std::span<const PicturesToStore> chunks, int threads,
                      const EncodePictures& encode = encode_on_host);

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
