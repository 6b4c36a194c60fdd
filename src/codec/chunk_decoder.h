// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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

// Every check of decode_chunk on the object itself.
Result<DecodedChunk> decode_pictures(std::span<const std::byte> object, format::Header header,
                                     const DecodeOptions& options);

// Restoring is cut into units: groups, or panels with a profile's basis. Thread-safe.
size_t restore_units(const DecodedChunk& chunk);
// The elements of one unit, as layout/row_gather.h orders them. Requires the profile.
std::vector<std::byte> restore_unit(const DecodedChunk& chunk, size_t unit);

}  // namespace kvcodec
