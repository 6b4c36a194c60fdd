// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "codec/calibrated_tier.h"
#include "codec/chunk_plan.h"
#include "kvcodec/codec.h"

namespace kvcodec {

// An object that passed every check, with its pictures decoded. Borrows the object.
struct DecodedChunk {
  format::Header header;
  const Profile* profile = nullptr;  // calibrated tiers, where the caller has it
  std::vector<GroupPlan> groups;
  std::vector<Panel> panels;             // with a profile's basis
  std::vector<PictureContent> contents;  // one a picture
  transform::RotationTable turns;
};

// The header of a whole object: read and checked against what is expected.
Result<format::Header> read_whole(std::span<const std::byte> object, const DecodeOptions& options);

// Everything that decode_chunk checks before it decodes, of a target of that geometry.
Result<format::Header> check_request(std::span<const std::byte> object, const KvGeometry* target,
                                     uint64_t memory_bytes, uint32_t first_token,
                                     const DecodeOptions& options);

// Chunks that follow each other in one target.
struct ChunkToRestore {
  std::span<const std::byte> object;
  uint32_t first_token = 0;           // of the target
  const ChunkId* expected = nullptr;  // instead of the options'
  // Instead of the options', where one is given.
  const Tier* expected_tier = nullptr;
  const Tier* lowest_tier = nullptr;
};
struct RestoredChunks {
  size_t chunks = 0;            // restored: all before the first that is at fault
  Status status = ok_status();  // of that one
};
// decode_chunk of several: their pictures are decoded together, and nothing is written from the
// first faulty one on, nor after a chunk where go_on(), which is called after each, says no.
RestoredChunks decode_chunks(std::span<const ChunkToRestore> chunks, const KvTarget& target,
                             DecodeOptions options, const std::function<bool()>& go_on);

// Every check of decode_chunk on the object itself.
Result<DecodedChunk> decode_pictures(std::span<const std::byte> object, format::Header header,
                                     const DecodeOptions& options);

// An object to decode into pictures, without a target.
struct ObjectToDecode {
  std::span<const std::byte> object;
  const ChunkId* expected = nullptr;  // instead of the options'
  const Profile* profile = nullptr;   // likewise
};
// The same of several, headers read too; their pictures are decoded together.
std::vector<Result<DecodedChunk>> decode_objects(std::span<const ObjectToDecode> objects,
                                                 DecodeOptions options);

// Restoring is cut into units: groups, or panels with a profile's basis. Thread-safe.
size_t restore_units(const DecodedChunk& chunk);
// The elements of one unit, as layout/row_gather.h orders them. Requires the profile.
std::vector<std::byte> restore_unit(const DecodedChunk& chunk, size_t unit);

}  // namespace kvcodec
