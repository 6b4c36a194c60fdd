// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "format/header_fields.h"

namespace kvcodec::format {

namespace {

constexpr uint32_t kSideStep = 8, kMinSide = 144;  // what every video decoder we use takes

uint32_t coded_side(uint32_t samples) {
  return std::max(kMinSide, (samples + kSideStep - 1) / kSideStep * kSideStep);
}

uint32_t planes(const Header& header) { return header.tier == Tier::exact ? 2 : 1; }

// At least one: a layer of more channels than a picture's height is cut into several pictures.
uint32_t layers_per_group(uint32_t channels, uint32_t max_picture_height) {
  return std::max(1u, max_picture_height / channels);
}

}  // namespace

const char* coding_name(Coding coding) {
  switch (coding) {
    case Coding::raw: return "raw";
    case Coding::hevc: return "hevc";
    case Coding::hevc_rice: return "hevc-rice";
  }
  return "unknown";
}

std::vector<RowGroup> row_groups(const KvShape& shape, KvKind kind, uint32_t max_picture_height) {
  std::vector<RowGroup> groups;
  const uint32_t channels = shape.channels(kind);
  if (channels == 0) return groups;
  const uint32_t step = layers_per_group(channels, max_picture_height);
  groups.reserve((shape.layers + step - 1) / step);
  for (uint32_t layer = 0; layer < shape.layers;) {
    const uint32_t count = std::min(step, shape.layers - layer);
    groups.push_back({layer * channels, count * channels});
    layer += count;
  }
  return groups;
}

uint64_t count_pictures(const Header& header) {
  uint64_t count = 0;
  const uint64_t tallest = header.max_picture_height;
  if (header.has_basis()) {
    for (const BasisGroup& group : header.groups)
      count += (group.live_rows + tallest - 1) / tallest;
    return count;
  }
  for (KvKind kind : kKvKinds) {
    const uint64_t channels = header.shape.channels(kind);
    if (channels == 0) continue;
    const uint64_t step = layers_per_group(header.shape.channels(kind), header.max_picture_height);
    const uint64_t groups = (header.shape.layers + step - 1) / step;
    const uint64_t pieces = (channels + tallest - 1) / tallest;  // of a group; 1 where step > 1
    count += groups * pieces * planes(header);
  }
  return count;
}

namespace {

// The pictures of layout rows [first_row, first_row + rows), which are of one group.
void lay_out_rows(const Header& header, KvKind kind, uint32_t first_row, uint32_t rows,
                  std::vector<Picture>& pictures) {
  for (uint32_t row = 0; row < rows;) {
    Picture picture;
    picture.kind = kind;
    picture.first_row = first_row + row;
    picture.rows = std::min(header.max_picture_height, rows - row);
    picture.width = coded_side(header.tokens);
    picture.height = coded_side(picture.rows);
    pictures.push_back(picture);
    if (planes(header) == 2) {
      picture.plane = Plane::low_bits;
      picture.width = picture.height = 0;
      pictures.push_back(picture);
    }
    row += picture.rows;
  }
}

}  // namespace

std::vector<Picture> layout_pictures(const Header& header) {
  std::vector<Picture> pictures;
  pictures.reserve(count_pictures(header));
  if (header.has_basis()) {
    uint32_t row[2] = {0, 0};
    for (const BasisGroup& group : header.groups) {
      uint32_t& first = row[static_cast<size_t>(group.kind)];
      lay_out_rows(header, group.kind, first, group.live_rows, pictures);
      first += group.components;
    }
    return pictures;
  }
  for (KvKind kind : kKvKinds) {
    for (const RowGroup& group : row_groups(header.shape, kind, header.max_picture_height))
      lay_out_rows(header, kind, group.first_row, group.rows, pictures);
  }
  return pictures;
}

uint32_t low_bits_count(DType dtype, uint32_t symbol_mantissa_bits) {
  switch (dtype) {
    case DType::f16: return 11 - symbol_mantissa_bits;
    case DType::bf16: return 8;
    case DType::f32: return 24;
  }
  return 0;
}

uint64_t low_bits_bytes(const Header& header, KvKind kind, uint32_t rows) {
  const uint64_t bits =
      low_bits_count(header.shape.dtype, header.symbol_mantissa_bits[static_cast<size_t>(kind)]);
  const uint64_t tokens = header.tokens;
  return rows * (bits / 8 * tokens + (bits % 8 * tokens + 7) / 8);
}

}  // namespace kvcodec::format
