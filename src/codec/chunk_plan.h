// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "format/header.h"
#include "layout/row_gather.h"
#include "transform/rotation.h"

namespace kvcodec {

// A group of rows that are sorted together, always whole layers or the components of a basis, and
// the pictures they make (indices into Header::pictures, top to bottom).
struct GroupPlan {
  KvKind kind = KvKind::key;
  format::RowGroup rows;
  layout::LayerRange layers;
  std::vector<size_t> symbols, low_bits;
};
// Groups of both kinds. Requires header.pictures as layout_pictures() gives them.
std::vector<GroupPlan> plan_groups(const format::Header& header);

// What a picture holds, decoded, and its stored bytes.
struct PictureContent {
  std::vector<uint8_t> samples;  // symbols: rows of `stride` samples
  size_t stride = 0;
  std::vector<std::byte> stored;       // encoding: the payload
  std::span<const std::byte> payload;  // decoding: the payload, in the object
};

// Where a natural row of a group (counted from the group's first) lies: row `row` of its
// picture number `picture` (counted in GroupPlan::symbols).
struct RowPlace {
  uint32_t picture = 0, row = 0;
};
std::vector<RowPlace> place_rows(const format::Header& header, const GroupPlan& plan);

// Where header.sinks keeps channel 0 of a sink token.
size_t sink_offset(const format::Header& header, KvKind kind, uint32_t layer, uint32_t token);

}  // namespace kvcodec
