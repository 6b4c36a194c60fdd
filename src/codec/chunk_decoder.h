// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "codec/chunk_plan.h"
#include "kvcodec/codec.h"

namespace kvcodec {

// An object that passed every check, with its pictures decoded. Borrows the object.
struct DecodedChunk {
  format::Header header;
  std::vector<GroupPlan> groups;
  std::vector<PictureContent> contents;  // one a picture
  transform::RotationTable turns;
};

// The header of a whole object: read and checked against what is expected.
Result<format::Header> read_whole(std::span<const std::byte> object, const DecodeOptions& options);

// Every check of decode_chunk on the object itself.
Result<DecodedChunk> decode_pictures(std::span<const std::byte> object, format::Header header,
                                     int threads);

// The elements of one group, as layout/row_gather.h orders them. Thread-safe.
std::vector<std::byte> restore_group(const DecodedChunk& chunk, const GroupPlan& plan);

}  // namespace kvcodec
