// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "codec/chunk_plan.h"
#include "format/header.h"
#include "kvcodec/codec.h"
#include "restore/kernel_arguments.h"

namespace kvcodec::restore {

// What the kernels need of one group, as offsets into a chunk's device memory.
struct GroupImage {
  GroupPlan plan;
  uint64_t samples = 0;     // staging: the group's pictures, tokens a row
  uint64_t layout_row = 0;  // u32 [rows]; exact, int8
  uint64_t steps = 0, offsets = 0, centres = 0, low_bits = 0;
  uint64_t escapes = 0;
  uint32_t escape_count = 0;
  uint64_t sinks = 0;
  // Of its pictures that HEVC coded: what ChecksumArguments takes.
  uint64_t check_offsets = 0, check_bytes = 0, check_expected = 0, check_found = 0;
  uint32_t checks = 0;
};

// A chunk's device memory: first what the host uploads, then what kernels fill.
struct ChunkImage {
  uint64_t upload_bytes = 0;
  std::vector<GroupImage> groups;
  std::vector<uint64_t> picture_samples;  // staging place of every symbols picture
  uint64_t secret = 0, phase_steps = 0, offset_of = 0, block_table = 0;
  bool has_block_table = false;
  uint64_t cosines = 0, sines = 0;
  uint64_t results = 0;  // u32 bad, then at + 8 u64 found [checked pictures]
  uint32_t checks = 0;
  uint64_t total_bytes = 0;
  // Of one group at a time, in memory that chunks of one stream share: offsets into that.
  uint64_t components = 0, values = 0, scratch_bytes = 0;
  uint32_t pairs = 0;
};

// No chunk's upload is longer.
uint64_t max_upload_bytes(const format::Header& header, uint64_t object_bytes,
                          const KvGeometry& target);

// Plans the memory and fills the part that is uploaded: tables, sinks, escapes, low bits, and
// pictures that are stored raw. `decoded`: contents that were decoded on the host instead, one a
// picture, or empty. `upload`: max_upload_bytes(). Requires a header and an object that passed
// check_request().
ChunkImage build_image(const format::Header& header, std::span<const std::byte> object,
                       std::span<const PictureContent> decoded, const KvGeometry& target,
                       std::span<std::byte> upload);

// Whether a picture's samples reach the device through NVDEC.
inline bool through_nvdec(const format::Picture& picture) {
  return picture.plane == format::Plane::symbols && picture.coding != format::Coding::raw;
}

}  // namespace kvcodec::restore
