// SPDX-License-Identifier: Apache-2.0
#include "codec/chunk_plan.h"

#include "layout/row_order.h"

namespace kvcodec {

namespace {

// Groups of a profile's basis; their rows are components.
std::vector<GroupPlan> plan_basis_groups(const format::Header& header) {
  std::vector<GroupPlan> plans;
  uint32_t first[2] = {0, 0};
  for (const format::BasisGroup& group : header.groups) {
    uint32_t& row = first[static_cast<size_t>(group.kind)];
    plans.push_back(
        {group.kind, {row, group.components}, {group.first_layer, group.layers}, {}, {}});
    row += group.components;
  }
  return plans;
}

std::vector<GroupPlan> plan_layer_groups(const format::Header& header) {
  std::vector<GroupPlan> plans;
  for (KvKind kind : kKvKinds) {
    const uint32_t channels = header.shape.channels(kind);
    for (const format::RowGroup& rows :
         format::row_groups(header.shape, kind, header.max_picture_height)) {
      GroupPlan plan;
      plan.kind = kind;
      plan.rows = rows;
      plan.layers = {rows.first_row / channels, rows.rows / channels};
      plans.push_back(std::move(plan));
    }
  }
  return plans;
}

}  // namespace

std::vector<GroupPlan> plan_groups(const format::Header& header) {
  std::vector<GroupPlan> plans =
      header.has_basis() ? plan_basis_groups(header) : plan_layer_groups(header);
  // Pictures are in the order of kinds and rows too, so that one pass finds each its group.
  size_t group = 0;
  for (size_t i = 0; i < header.pictures.size(); ++i) {
    const format::Picture& picture = header.pictures[i];
    const auto holds = [&](const GroupPlan& plan) {
      return plan.kind == picture.kind && picture.first_row - plan.rows.first_row < plan.rows.rows;
    };
    while (!holds(plans[group])) group = (group + 1) % plans.size();
    auto& list =
        picture.plane == format::Plane::symbols ? plans[group].symbols : plans[group].low_bits;
    list.push_back(i);
  }
  return plans;
}

std::vector<RowPlace> place_rows(const format::Header& header, const GroupPlan& plan) {
  const auto& keys = header.row_keys[static_cast<size_t>(plan.kind)];
  const std::vector<uint32_t> order =
      layout::sort_rows(std::span(keys).subspan(plan.rows.first_row, plan.rows.rows));
  std::vector<RowPlace> places(order.size());
  for (uint32_t i = 0; i < order.size(); ++i)
    places[order[i]] = {i / header.max_picture_height, i % header.max_picture_height};
  return places;
}

size_t sink_offset(const format::Header& header, KvKind kind, uint32_t layer, uint32_t token) {
  const KvShape& shape = header.shape;
  const size_t element = dtype_bytes(shape.dtype);
  const size_t key_row = shape.channels(KvKind::key) * element;
  const size_t value_row = shape.channels(KvKind::value) * element;
  const size_t in_layer =
      kind == KvKind::key ? token * key_row : header.sink_tokens * key_row + token * value_row;
  return layer * header.sink_tokens * (key_row + value_row) + in_layer;
}

}  // namespace kvcodec
