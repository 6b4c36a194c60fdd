// SPDX-License-Identifier: Apache-2.0
// The header's arrays between the fixed part and the picture index.
#include <cmath>
#include <tuple>

#include "format/header_reader.h"

namespace kvcodec::format {

Status HeaderReader::read_groups() {
  read_array(header_.rope.phase_steps, header_.rope.rotary_dims / 2);
  if (!is_calibrated(header_.tier)) return ok_status();
  uint32_t layer[2] = {0, 0};
  header_.groups.reserve(group_count_);
  for (uint32_t i = 0; i < group_count_; ++i) KVCODEC_CHECK(read_group(i, layer));
  for (KvKind kind : kKvKinds) {
    const uint32_t end = layer[static_cast<size_t>(kind)];
    if (header_.shape.head_dim(kind) > 0 && end != header_.shape.layers) {
      return bad_field(
          "group_count", kGroupCountAt,
          fmt::format("groups of all {} layers of {}", header_.shape.layers, kv_kind_name(kind)),
          fmt::format("{} layers", end));
    }
  }
  if (header_.basis == Basis::identity) KVCODEC_CHECK(check_identity_groups());
  return check_picture_count();
}

// Layers without a basis are grouped as those of version 1.
Status HeaderReader::check_identity_groups() {
  size_t index = 0;
  for (KvKind kind : kKvKinds) {
    const uint32_t channels = header_.shape.channels(kind);
    for (const RowGroup& rows : row_groups(header_.shape, kind, header_.max_picture_height)) {
      if (index == header_.groups.size() || header_.groups[index].layers != rows.rows / channels) {
        return bad_field(fmt::format("groups[{}].layers", index), kGroupCountAt,
                         fmt::format("{}, as the layout has them", rows.rows / channels), "others");
      }
      ++index;
    }
  }
  return ok_status();
}

// layer: where the next group of each kind must begin.
Status HeaderReader::read_group(uint32_t index, uint32_t (&layer)[2]) {
  const size_t start = at_;
  const auto bad = [&](const char* field, size_t at, const auto& expected, const auto& found) {
    return bad_field(fmt::format("groups[{}].{}", index, field), start + at, expected, found);
  };
  const auto kind = next<uint8_t>();
  const uint32_t zeros = next<uint8_t>() + next<uint8_t>() + next<uint8_t>();
  const bool after_values = !header_.groups.empty() && header_.groups.back().kind == KvKind::value;
  const uint8_t most = header_.shape.value_dim > 0 ? 1 : 0;
  if (kind < (after_values ? 1 : 0) || kind > most)
    return bad("kind", 0, range_text(after_values ? 1 : 0, most), kind);
  if (zeros != 0) return bad("reserved", 1, 0, zeros);
  BasisGroup group;
  group.kind = static_cast<KvKind>(kind);
  group.first_layer = next<uint32_t>();
  group.layers = next<uint32_t>();
  group.components = next<uint32_t>();
  group.live_rows = next<uint32_t>();
  group.step = next<float>();
  group.delta[0] = next<float>();
  group.delta[1] = next<float>();
  group.noise = next<float>();
  group.relative_error = next<float>();
  uint32_t& begin = layer[kind];
  if (group.first_layer != begin) return bad("first_layer", 4, begin, group.first_layer);
  const uint32_t left = header_.shape.layers - begin;
  if (group.layers == 0 || group.layers > left)
    return bad("layers", 8, range_text(1, left), group.layers);
  begin += group.layers;
  const uint32_t channels = group.layers * header_.shape.channels(group.kind);
  const bool identity = header_.basis == Basis::identity;
  if (group.components < (identity ? channels : 1) || group.components > channels)
    return bad("components", 12, range_text(identity ? channels : 1, channels), group.components);
  const uint32_t least_live = identity ? group.components : 0;
  if (group.live_rows < least_live || group.live_rows > group.components)
    return bad("live_rows", 16, range_text(least_live, group.components), group.live_rows);
  if (identity ? group.step != 0 : !std::isfinite(group.step) || group.step <= 0)
    return bad("step", 20, identity ? "0" : "a finite number above 0", group.step);
  for (size_t i = 0; i < 2; ++i) {
    if (!(std::abs(group.delta[i]) <= (identity ? 0 : 1)))
      return bad("delta", 24 + 4 * i, identity ? "0" : "a number from -1 to 1", group.delta[i]);
  }
  if (!std::isfinite(group.noise) || group.noise < 0)
    return bad("noise", 32, "a finite number, at least 0", group.noise);
  if (!std::isfinite(group.relative_error) || group.relative_error < 0)
    return bad("relative_error", 36, "a finite number, at least 0", group.relative_error);
  header_.groups.push_back(group);
  return ok_status();
}

// Rows that escapes may name, as ascending ranges: natural ones, or the live ones of each group.
std::vector<HeaderReader::RowRange> HeaderReader::escape_rows() const {
  std::vector<RowRange> ranges;
  if (header_.has_row_keys()) {
    for (KvKind kind : kKvKinds) ranges.push_back({kind, 0, header_.rows(kind)});
    return ranges;
  }
  uint32_t first[2] = {0, 0};
  for (const BasisGroup& group : header_.groups) {
    uint32_t& row = first[static_cast<size_t>(group.kind)];
    ranges.push_back({group.kind, row, row + group.live_rows});
    row += group.components;
  }
  return ranges;
}

Status HeaderReader::read_arrays() {
  for (KvKind kind : kKvKinds) {
    if (header_.has_row_keys()) read_array(header_.row_keys[static_cast<size_t>(kind)], rows(kind));
  }
  KVCODEC_CHECK(read_layer_steps());
  read_array(header_.sinks, header_.shape.token_bytes() * header_.sink_tokens);
  return ok_status();
}

Status HeaderReader::read_layer_steps() {
  if (!header_.has_layer_steps()) return ok_status();
  for (KvKind kind : kKvKinds) {
    if (rows(kind) == 0) continue;
    const size_t start = at_;
    std::vector<float>& steps = header_.steps[static_cast<size_t>(kind)];
    read_array(steps, header_.shape.layers);
    for (size_t layer = 0; layer < steps.size(); ++layer) {
      if (!std::isfinite(steps[layer]) || steps[layer] <= 0) {
        return bad_field(fmt::format("steps[{}][{}]", kv_kind_name(kind), layer),
                         start + layer * sizeof(float), "a finite number above 0", steps[layer]);
      }
    }
  }
  for (KvKind kind : kKvKinds) {
    read_array(header_.row_offsets[static_cast<size_t>(kind)], rows(kind));
  }
  return ok_status();
}

Status HeaderReader::read_escapes() {
  const std::vector<RowRange> ranges = escape_rows();
  auto range = ranges.begin();
  header_.escapes.reserve(escape_count_);
  for (uint32_t i = 0; i < escape_count_; ++i) {
    const size_t start = at_;
    const auto kind = next<uint32_t>();
    Escape escape;
    escape.row = next<uint32_t>();
    escape.token = next<uint32_t>();
    escape.code = next<int32_t>();
    auto bad = [&](const char* field, size_t offset, const auto& expected, const auto& found) {
      return bad_field(fmt::format("escapes[{}].{}", i, field), start + offset, expected, found);
    };
    if (kind > 1) return bad("kind", 0, "0 (K) or 1 (V)", kind);
    escape.kind = static_cast<KvKind>(kind);
    if (i > 0) {
      const Escape& last = header_.escapes.back();
      if (std::tie(last.kind, last.row, last.token) >=
          std::tie(escape.kind, escape.row, escape.token)) {
        return bad("position", 0, "ascending (kind, row, token)",
                   fmt::format("({}, {}, {}) after ({}, {}, {})", kind, escape.row, escape.token,
                               static_cast<int>(last.kind), last.row, last.token));
      }
    }
    const auto place = std::tie(escape.kind, escape.row);
    while (range != ranges.end() && std::tie(range->kind, range->end) <= place) ++range;
    if (range == ranges.end() || std::tie(range->kind, range->begin) > place)
      return bad("row", 4, "a row that has pictures", escape.row);
    if (escape.token < header_.sink_tokens || escape.token >= header_.tokens) {
      return bad("token", 8, fmt::format("{} to before {}", header_.sink_tokens, header_.tokens),
                 escape.token);
    }
    if (escape.code >= -127 && escape.code <= 127) {
      return bad("code", 12, "below -127 or above 127", escape.code);
    }
    header_.escapes.push_back(escape);
  }
  return ok_status();
}

}  // namespace kvcodec::format
