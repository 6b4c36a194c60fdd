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

// Checks the payloads of all pictures and decodes their samples (stride: tokens), on up to
// `threads` threads. corrupt names the first faulty picture.
Status load_pictures(const format::Header& header, std::span<const std::byte> object, int threads,
                     std::span<PictureContent> contents);

}  // namespace kvcodec
