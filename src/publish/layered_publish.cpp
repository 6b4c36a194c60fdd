// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/parallel.h"
#include "codec/int8_tier.h"
#include "publish/chunk_publishers.h"
#include "transform/exact_split.h"
#include "transform/symbol_order.h"

namespace kvcodec::publish {
namespace {

transform::ExactSplit split_of(const format::Header& header, KvKind kind) {
  return transform::ExactSplit::of(header.shape.dtype,
                                   header.symbol_mantissa_bits[static_cast<size_t>(kind)]);
}

// Escapes of a group that there is room for at first: tier int8 has few.
uint32_t usual_room(uint64_t values) { return static_cast<uint32_t>(1024 + values / 64); }

}  // namespace

void LayeredPublish::plan_memory() {
  const uint64_t tokens = header_.tokens;
  for (const GroupPlan& plan : groups_) {
    GroupPlace place;
    place.row = rows_;
    place.layer = layers_;
    place.pictures = picture_bytes_;
    place.low_bits = low_bytes_;
    for (const size_t index : plan.symbols) {
      const format::Picture& picture = header_.pictures[index];
      place.width = picture.width;
      place.picture_bytes += uint64_t{picture.width} * picture.height;
    }
    if (header_.tier == Tier::exact)
      place.low_bytes = plan.rows.rows * split_of(header_, plan.kind).low_row_bytes(tokens);
    rows_ += plan.rows.rows;
    layers_ += plan.layers.count;
    picture_bytes_ += place.picture_bytes;
    low_bytes_ += place.low_bytes;
    largest_group_ = std::max<uint64_t>(largest_group_, plan.rows.rows);
    places_.push_back(place);
  }
  tables_ = plan_tables(source_, header_.has_layer_steps() ? header_.rope : Rope{}, header_.tokens,
                        memory_);
  pictures_ = memory_.fetched(picture_bytes_);
  low_bits_ = memory_.fetched(low_bytes_);
  keys_ = memory_.fetched(rows_);
  row_places_ = memory_.scratch(rows_ * sizeof(uint32_t));
  const uint64_t values = largest_group_ * tokens;
  if (header_.tier == Tier::exact) {
    sample_of_ = memory_.upload(std::as_bytes(std::span(transform::kSymbolOrder.sample_of)));
    elements_ = memory_.scratch(values * dtype_bytes(header_.shape.dtype));
    return;
  }
  steps_ = memory_.fetched(layers_ * sizeof(float));
  offsets_ = memory_.fetched(rows_ * sizeof(int16_t));
  sinks_ = memory_.fetched(header_.sinks.size());
  bad_ = memory_.fetched(sizeof(uint32_t));
  counts_ = memory_.fetched(groups_.size() * sizeof(uint32_t));
  values_ = memory_.scratch(values * sizeof(float));
  statistics_ = memory_.scratch(largest_group_ * sizeof(RowStatistics));
  const bool measured = is_calibrated(header_.tier);
  samples_ = memory_.scratch(measured ? rows_ * tokens : values);
  if (!measured) return;
  std::vector<uint32_t> natural(largest_group_);
  std::iota(natural.begin(), natural.end(), 0);
  natural_ = memory_.upload(std::as_bytes(std::span(natural)));
  errors_ = memory_.scratch(2 * values * sizeof(float));
  sums_ = memory_.fetched(rows_ * 2 * sizeof(double));
}

Status LayeredPublish::launch_exact(size_t group) {
  const GroupPlace& place = places_[group];
  const transform::ExactSplit how = split_of(header_, groups_[group].kind);
  const GroupSource source = source_of(group);
  auto* elements = memory_.on_device<uint8_t>(elements_);
  auto* keys = memory_.on_device<uint8_t>(keys_, place.row);
  auto* places = memory_.on_device<uint32_t>(row_places_, place.row);
  const CUstream stream = memory_.stream();
  const uint32_t rows = row_count(group);
  KVCODEC_CHECK(device_.kernels().run(ElementsArguments{source, elements}, stream));
  KVCODEC_CHECK(device_.kernels().run(
      RowKeysArguments{elements, keys, rows, header_.tokens, source.cache.element_bytes}, stream));
  KVCODEC_CHECK(device_.kernels().run(SortArguments{keys, places, rows}, stream));
  SplitArguments a = {};
  a.elements = elements;
  a.keys = keys;
  a.places = places;
  a.sample_of = memory_.on_device<const uint8_t>(sample_of_);
  a.samples = memory_.on_device<uint8_t>(pictures_, place.pictures);
  a.low = memory_.on_device<uint8_t>(low_bits_, place.low_bits);
  a.rows = rows;
  a.tokens = header_.tokens;
  a.width = place.width;
  a.bits = how.bits;
  a.low_bits = how.low_bits;
  a.key_shift = how.key_shift;
  a.low_row_bytes = static_cast<uint32_t>(how.low_row_bytes(header_.tokens));
  return device_.kernels().run(a, stream);
}

Status LayeredPublish::launch_int8(size_t group) {
  const GroupPlan& plan = groups_[group];
  const GroupPlace& place = places_[group];
  const GroupSource source = source_of(group);
  const PublishKernels& kernels = device_.kernels();
  const CUstream stream = memory_.stream();
  const uint32_t rows = row_count(group), tokens = header_.tokens, sinks = header_.sink_tokens;
  const uint32_t channels = header_.shape.channels(plan.kind);
  auto* values = memory_.on_device<float>(values_);
  auto* statistics = memory_.on_device<RowStatistics>(statistics_);
  auto* steps = memory_.on_device<float>(steps_, place.layer);
  auto* offsets = memory_.on_device<int16_t>(offsets_, place.row);
  auto* keys = memory_.on_device<uint8_t>(keys_, place.row);
  auto* places = memory_.on_device<uint32_t>(row_places_, place.row);
  auto* samples = memory_.on_device<uint8_t>(
      samples_, is_calibrated(header_.tier) ? place.row * header_.tokens : 0);
  KVCODEC_CHECK(kernels.run(
      sinks_arguments(source, header_, plan, memory_.on_device<uint8_t>(sinks_)), stream));
  ValuesArguments read = values_arguments(source, header_, plan, memory_, tables_);
  read.values = values;
  read.bad = memory_.on_device<uint32_t>(bad_);
  KVCODEC_CHECK(kernels.run(read, stream));
  KVCODEC_CHECK(kernels.run(StatisticsArguments{values, statistics, rows, tokens, sinks}, stream));
  KVCODEC_CHECK(kernels.run(
      StepsArguments{statistics, steps, offsets, tuning_.step_rule.per_peak,
                     tuning_.step_rule.per_rms, plan.layers.count, channels, tokens, sinks},
      stream));
  KVCODEC_CHECK(kernels.run(
      QuantiseArguments{values, steps, offsets, samples, tuning_.sort_codes ? keys : nullptr,
                        lists_.of(group), memory_.on_device<uint32_t>(counts_, group),
                        lists_.room(), rows, channels, tokens, sinks},
      stream));
  KVCODEC_CHECK(kernels.run(SortArguments{keys, places, rows}, stream));
  return kernels.run(
      PlaceArguments{samples, places, memory_.on_device<uint8_t>(pictures_, place.pictures), rows,
                     tokens, place.width},
      stream);
}

Status LayeredPublish::launch_all() {
  KVCODEC_CHECK(memory_.set(pictures_, 128, picture_bytes_));
  KVCODEC_CHECK(memory_.set(keys_, 0, rows_));
  if (header_.tier == Tier::exact) {
    for (size_t group = 0; group < groups_.size(); ++group) KVCODEC_CHECK(launch_exact(group));
    return ok_status();
  }
  KVCODEC_CHECK(memory_.set(bad_, 0, sizeof(uint32_t)));
  KVCODEC_CHECK(memory_.set(counts_, 0, groups_.size() * sizeof(uint32_t)));
  KVCODEC_CHECK(make_tables(device_, memory_, tables_, header_.id.first_token, header_.tokens));
  for (size_t group = 0; group < groups_.size(); ++group) KVCODEC_CHECK(launch_int8(group));
  return ok_status();
}

Status LayeredPublish::fill_pictures() {
  plan_memory();
  KVCODEC_CHECK(memory_.allocate());
  const bool exact = header_.tier == Tier::exact;
  if (!exact) KVCODEC_CHECK(lists_.reserve(usual_room(largest_group_ * header_.tokens)));
  for (;;) {
    KVCODEC_CHECK(launch_all());
    KVCODEC_CHECK(fetch_results());
    KVCODEC_CHECK(memory_.synchronise());
    if (exact) break;
    if (*memory_.on_host<uint32_t>(bad_) != 0) return first_bad_value();
    const auto* counts = memory_.on_host<uint32_t>(counts_);
    const uint32_t most = *std::max_element(counts, counts + groups_.size());
    if (most <= lists_.room()) break;
    KVCODEC_CHECK(lists_.reserve(most));
  }
  for (size_t group = 0; group < groups_.size(); ++group) KVCODEC_CHECK(fill_group(group));
  // Everything is a copy of page-locked memory.
  parallel_for(groups_.size(), threads_, [&](size_t group, int) {
    const GroupPlan& plan = groups_[group];
    const auto* from = memory_.on_host<uint8_t>(pictures_, places_[group].pictures);
    for (const size_t index : plan.symbols) {
      const format::Picture& picture = header_.pictures[index];
      const size_t bytes = size_t{picture.width} * picture.height;
      contents_[index].stride = picture.width;
      contents_[index].samples.assign(from, from + bytes);
      from += bytes;
    }
    const auto* low = memory_.on_host<std::byte>(low_bits_, places_[group].low_bits);
    for (const size_t index : plan.low_bits) {
      const size_t bytes =
          header_.pictures[index].rows * split_of(header_, plan.kind).low_row_bytes(header_.tokens);
      contents_[index].stored.assign(low, low + bytes);
      low += bytes;
    }
  });
  return ok_status();
}

Status LayeredPublish::fetch_results() {
  KVCODEC_CHECK(memory_.fetch(pictures_, picture_bytes_));
  KVCODEC_CHECK(memory_.fetch(low_bits_, low_bytes_));
  KVCODEC_CHECK(memory_.fetch(keys_, rows_));
  if (header_.tier == Tier::exact) return ok_status();
  KVCODEC_CHECK(memory_.fetch(steps_, layers_ * sizeof(float)));
  KVCODEC_CHECK(memory_.fetch(offsets_, rows_ * sizeof(int16_t)));
  KVCODEC_CHECK(memory_.fetch(sinks_, header_.sinks.size()));
  KVCODEC_CHECK(memory_.fetch(bad_, sizeof(uint32_t)));
  return memory_.fetch(counts_, groups_.size() * sizeof(uint32_t));
}

// What of the header follows from the values of a group.
Status LayeredPublish::fill_group(size_t group) {
  const GroupPlan& plan = groups_[group];
  const GroupPlace& place = places_[group];
  const auto kind = static_cast<size_t>(plan.kind);
  std::copy_n(memory_.on_host<uint8_t>(keys_, place.row), plan.rows.rows,
              header_.row_keys[kind].begin() + plan.rows.first_row);
  if (header_.tier == Tier::exact) return ok_status();
  std::copy_n(memory_.on_host<float>(steps_, place.layer), plan.layers.count,
              header_.steps[kind].begin() + plan.layers.first);
  std::copy_n(memory_.on_host<int16_t>(offsets_, place.row), plan.rows.rows,
              header_.row_offsets[kind].begin() + plan.rows.first_row);
  if (group == 0 && !header_.sinks.empty())
    std::memcpy(header_.sinks.data(), memory_.on_host<std::byte>(sinks_), header_.sinks.size());
  KVCODEC_TRY(const auto entries,
              lists_.fetch(group, memory_.on_host<uint32_t>(counts_)[group], memory_.stream()));
  escapes_[group] = sorted_escapes(entries, plan.kind, plan.rows.first_row);
  return ok_status();
}

// The kernels say only that there is one: the CPU's error names it.
Status LayeredPublish::first_bad_value() {
  for (size_t group = 0; group < groups_.size(); ++group) {
    KVCODEC_TRY(const auto rows, fetch_elements(device_, source_of(group), memory_.stream()));
    KVCODEC_CHECK(quantise_group(groups_[group], rows.data(), turns_, tuning_, header_, contents_,
                                 escapes_[group]));
  }
  return make_error(ErrorCode::internal, "a kernel reports a value that is not there");
}

Status LayeredPublish::measure() {
  const CUstream stream = memory_.stream();
  for (size_t group = 0; group < groups_.size(); ++group) {
    const GroupPlan& plan = groups_[group];
    const GroupPlace& place = places_[group];
    restore::LayerValuesArguments restored = {};
    restored.samples = memory_.on_device<const uint8_t>(samples_, place.row * header_.tokens);
    restored.layout_row = memory_.on_device<const uint32_t>(natural_);
    restored.steps = memory_.on_device<const float>(steps_, place.layer);
    restored.offsets = memory_.on_device<const int16_t>(offsets_, place.row);
    restored.values = memory_.on_device<float>(values_);
    restored.rows = row_count(group);
    restored.channels = header_.shape.channels(plan.kind);
    restored.tokens = header_.tokens;
    KVCODEC_CHECK(device_.restore_kernels().run(restored, stream));
    restore::EscapeArguments escapes = {};
    escapes.escapes = lists_.of(group);
    escapes.steps = restored.steps;
    escapes.offsets = restored.offsets;
    escapes.values = restored.values;
    escapes.count = memory_.on_host<uint32_t>(counts_)[group];
    escapes.channels = restored.channels;
    escapes.tokens = header_.tokens;
    KVCODEC_CHECK(device_.restore_kernels().run(escapes, stream));
    const ValuesArguments read =
        values_arguments(source_of(group), header_, plan, memory_, tables_);
    auto* errors = memory_.on_device<float>(errors_);
    auto* values = errors + largest_group_ * header_.tokens;
    KVCODEC_CHECK(device_.kernels().run(
        ErrorsArguments{read.source, restored.values, read.cosines, read.sines, read.pairs,
                        read.interleaved, errors, values},
        stream));
    KVCODEC_CHECK(device_.kernels().run(
        RowErrorsArguments{errors, values, restored.steps, restored.offsets,
                           memory_.on_device<double>(sums_, 2 * place.row), restored.rows,
                           restored.channels, header_.tokens, header_.sink_tokens},
        stream));
  }
  KVCODEC_CHECK(memory_.fetch(sums_, rows_ * 2 * sizeof(double)));
  KVCODEC_CHECK(memory_.synchronise());
  for (size_t group = 0; group < groups_.size(); ++group) {
    const auto* sums = memory_.on_host<double>(sums_, 2 * places_[group].row);
    double noise = 0, energy = 0;
    for (uint32_t row = 0; row < row_count(group); ++row) {
      noise += sums[2 * row];
      energy += sums[2 * row + 1];
    }
    record_errors(header_, noise, energy, header_.groups[group]);
  }
  return ok_status();
}

}  // namespace kvcodec::publish
