// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "publish/chunk_publishers.h"
#include "transform/basis_product.h"
#include "transform/code_choice.h"
#include "transform/component_quantise.h"

namespace kvcodec::publish {
namespace {

static_assert(kPanel == kPanelTokens);
static_assert(kRateRows == transform::kRateRows);
static_assert(kMagnitudes == transform::RateModel::kMagnitudes);

// More escapes than this make too many for the tier (too_many_escapes()), as a rule.
uint32_t usual_room(uint64_t values) { return static_cast<uint32_t>(1024 + values / 16); }

}  // namespace

size_t CalibratedPublish::rate_models(size_t group) const {
  return (header_.groups[group].components + kRateRows - 1) / kRateRows;
}

void CalibratedPublish::plan_memory() {
  const uint64_t tokens = header_.tokens;
  uint64_t components = 0, models = 0, most_channels = 0, most_components = 0;
  for (size_t group = 0; group < plans_.size(); ++group) {
    first_component_.push_back(components);
    components += header_.groups[group].components;
    first_model_.push_back(models);
    models += rate_models(group);
    most_channels = std::max<uint64_t>(most_channels, channels(group));
    most_components = std::max<uint64_t>(most_components, header_.groups[group].components);
  }
  panels_of_group_ = panels_.size() / plans_.size();
  tables_ = plan_tables(source_, header_.rope, header_.tokens, memory_);
  sinks_ = memory_.fetched(header_.sinks.size());
  bad_ = memory_.fetched(sizeof(uint32_t));
  peaks_ = memory_.fetched(components * sizeof(int32_t));
  magnitudes_ = memory_.fetched(models * kMagnitudes * sizeof(uint32_t));
  bits_ = memory_.fetched(models * kMagnitudes * sizeof(float));
  rows_ = memory_.fetched(components * sizeof(ComponentRow));
  counts_ = memory_.fetched(plans_.size() * sizeof(uint32_t));
  codes_ = memory_.fetched(components * tokens);
  totals_ = memory_.fetched(panels_.size() * 2 * sizeof(double));
  analysed_ = memory_.scratch(components * tokens * sizeof(float));
  values_ = memory_.scratch(most_channels * tokens * sizeof(float));
  weighed_ = memory_.scratch(most_channels * tokens * sizeof(float));
  errors_ = memory_.scratch(most_channels * tokens * sizeof(float));
  restored_ = memory_.scratch(most_components * tokens * sizeof(float));
  row_sums_ = memory_.scratch(most_channels * panels_of_group_ * sizeof(double));
}

// All components at once: what a finer tier may need costs little here.
Status CalibratedPublish::analyse(double step) {
  add_components(step);
  return on_device_ == nullptr ? analyse_all() : ok_status();
}

Status CalibratedPublish::analyse_all() {
  KVCODEC_TRY(on_device_, device_.profile(profile_));
  plan_memory();
  KVCODEC_CHECK(memory_.allocate());
  uint64_t most = 0;
  for (const format::BasisGroup& group : header_.groups)
    most = std::max<uint64_t>(most, group.components);
  KVCODEC_CHECK(lists_.reserve(usual_room(most * header_.tokens)));
  KVCODEC_CHECK(memory_.set(bad_, 0, sizeof(uint32_t)));
  KVCODEC_CHECK(make_tables(device_, memory_, tables_, header_.id.first_token, header_.tokens));
  for (size_t group = 0; group < plans_.size(); ++group) KVCODEC_CHECK(launch_analysis(group));
  KVCODEC_CHECK(memory_.fetch(sinks_, header_.sinks.size()));
  KVCODEC_CHECK(memory_.fetch(bad_, sizeof(uint32_t)));
  KVCODEC_CHECK(memory_.synchronise());
  if (*memory_.on_host<uint32_t>(bad_) != 0) return first_bad_value();
  if (!header_.sinks.empty())
    std::memcpy(header_.sinks.data(), memory_.on_host<std::byte>(sinks_), header_.sinks.size());
  return ok_status();
}

Status CalibratedPublish::launch_analysis(size_t group) {
  const ProfileGroup& profile = profile_.groups()[group];
  const ProfileOnDevice::Group& on_device = on_device_->groups[group];
  const GroupSource source = source_of(group);
  const PublishKernels& kernels = device_.kernels();
  const CUstream stream = memory_.stream();
  // NOLINTBEGIN(performance-no-int-to-ptr)
  const auto* mean = reinterpret_cast<const float*>(on_device.mean.data());
  const auto* metric = reinterpret_cast<const float*>(on_device.metric.data());
  const auto* basis = reinterpret_cast<const float*>(on_device.basis.data());
  // NOLINTEND(performance-no-int-to-ptr)
  auto* values = memory_.on_device<float>(values_);
  KVCODEC_CHECK(kernels.run(
      sinks_arguments(source, header_, plans_[group], memory_.on_device<uint8_t>(sinks_)), stream));
  ValuesArguments read = values_arguments(source, header_, plans_[group], memory_, tables_);
  read.values = values;
  read.bad = memory_.on_device<uint32_t>(bad_);
  KVCODEC_CHECK(kernels.run(read, stream));
  const bool block = profile.block_metric();
  KVCODEC_CHECK(kernels.run(CentreArguments{values, mean, block ? nullptr : metric, channels(group),
                                            header_.tokens, header_.sink_tokens},
                            stream));
  if (block) {
    auto* weighed = memory_.on_device<float>(weighed_);
    KVCODEC_CHECK(kernels.run(AnalysisArguments{metric, values, weighed, source.dim, source.dim,
                                                header_.tokens, channels(group) / source.dim},
                              stream));
    values = weighed;
  }
  return kernels.run(
      AnalysisArguments{
          basis, values,
          memory_.on_device<float>(analysed_, first_component_[group] * header_.tokens),
          header_.groups[group].components, channels(group), header_.tokens, 1},
      stream);
}

// The kernels say only that there is one: the CPU's error names it.
Status CalibratedPublish::first_bad_value() {
  for (size_t group = 0; group < plans_.size(); ++group) {
    KVCODEC_TRY(const auto rows, fetch_elements(device_, source_of(group), memory_.stream()));
    const size_t element = dtype_bytes(header_.shape.dtype), row = header_.tokens * element;
    Components components;
    components.row = transform::padded_columns(header_.tokens);
    components.count = header_.groups[group].components;
    components.values.resize(components.count * components.row);
    for (const Panel& panel : panels_) {
      if (panel.group != group) continue;
      const size_t panel_row = panel.tokens.count * element;
      std::vector<std::byte> cut(channels(group) * panel_row);
      for (size_t c = 0; c < channels(group); ++c)
        std::memcpy(cut.data() + c * panel_row,
                    rows.data() + c * row + panel.tokens.first * element, panel_row);
      KVCODEC_CHECK(analyse_panel(context(), panel, cut.data(), 0, components));
    }
  }
  return make_error(ErrorCode::internal, "a kernel reports a value that is not there");
}

Status CalibratedPublish::launch_quantise(size_t group) {
  const ProfileTier& tier = profile_.tier(header_.tier);
  ComponentsArguments a = {};
  a.values = memory_.on_device<const float>(analysed_, first_component_[group] * header_.tokens);
  a.samples = memory_.on_device<uint8_t>(codes_, first_component_[group] * header_.tokens);
  a.peaks = memory_.on_device<int32_t>(peaks_, first_component_[group]);
  a.magnitudes = memory_.on_device<uint32_t>(magnitudes_, first_model_[group] * kMagnitudes);
  a.escapes = lists_.of(group);
  a.escape_count = memory_.on_device<uint32_t>(counts_, group);
  a.step = static_cast<float>(tier.step);
  a.dead_zone = static_cast<float>(tier.dead_zone);
  a.escape_room = lists_.room();
  a.components = components_[group].count;
  a.tokens = header_.tokens;
  return device_.kernels().run(a, memory_.stream());
}

// As lower_rows(): bits by what the kernel counted, then the kernel that uses them.
Status CalibratedPublish::launch_lowering(size_t index) {
  const ProfileTier& tier = profile_.tier(header_.tier);
  const format::BasisGroup& group = header_.groups[index];
  const auto* peaks = memory_.on_host<int32_t>(peaks_, first_component_[index]);
  uint32_t coded_rows = 0;
  for (uint32_t row = 0; row < components_[index].count; ++row) {
    if (peaks[row] == transform::kMaxComponentCode) return component_too_large(group, row);
    if (peaks[row] != 0) coded_rows = row + 1;
  }
  const auto* magnitudes =
      memory_.on_host<uint32_t>(magnitudes_, first_model_[index] * kMagnitudes);
  auto* bits = memory_.on_host<float>(bits_, first_model_[index] * kMagnitudes);
  for (uint32_t first = 0; first < coded_rows; first += kRateRows) {
    transform::RateModel rates;
    uint64_t zeros = uint64_t{std::min(kRateRows, coded_rows - first)} * header_.tokens;
    for (size_t k = 1; k < kMagnitudes; ++k) {
      rates.add_count(k, magnitudes[k]);
      zeros -= magnitudes[k];
    }
    rates.add_count(0, zeros);
    const auto found = rates.bits();
    std::copy(found.begin(), found.end(), bits);
    magnitudes += kMagnitudes;
    bits += kMagnitudes;
  }
  LowerArguments a = {};
  a.values = memory_.on_device<const float>(analysed_, first_component_[index] * header_.tokens);
  a.samples = memory_.on_device<uint8_t>(codes_, first_component_[index] * header_.tokens);
  a.bits = memory_.on_device<const float>(bits_, first_model_[index] * kMagnitudes);
  a.rows_out = memory_.on_device<ComponentRow>(rows_, first_component_[index]);
  a.step = static_cast<float>(tier.step);
  a.dead_zone = static_cast<float>(tier.dead_zone);
  a.bit_worth = transform::kBitWorth;
  a.components = components_[index].count;
  a.tokens = header_.tokens;
  ChunkMemory::Place of_group = bits_;
  of_group.offset += first_model_[index] * kMagnitudes * sizeof(float);
  KVCODEC_CHECK(memory_.send(of_group, rate_models(index) * kMagnitudes * sizeof(float)));
  return device_.kernels().run(a, memory_.stream());
}

Status CalibratedPublish::quantise_groups() {
  const uint64_t components = first_component_.back() + header_.groups.back().components;
  const uint64_t models = first_model_.back() + rate_models(plans_.size() - 1);
  for (;;) {
    KVCODEC_CHECK(memory_.set(counts_, 0, plans_.size() * sizeof(uint32_t)));
    for (size_t group = 0; group < plans_.size(); ++group) KVCODEC_CHECK(launch_quantise(group));
    KVCODEC_CHECK(memory_.fetch(peaks_, components * sizeof(int32_t)));
    KVCODEC_CHECK(memory_.fetch(magnitudes_, models * kMagnitudes * sizeof(uint32_t)));
    KVCODEC_CHECK(memory_.fetch(counts_, plans_.size() * sizeof(uint32_t)));
    KVCODEC_CHECK(memory_.synchronise());
    const auto* counts = memory_.on_host<uint32_t>(counts_);
    const uint32_t most = *std::max_element(counts, counts + plans_.size());
    if (most <= lists_.room()) break;
    KVCODEC_CHECK(lists_.reserve(most));
  }
  for (size_t group = 0; group < plans_.size(); ++group) KVCODEC_CHECK(launch_lowering(group));
  KVCODEC_CHECK(memory_.fetch(rows_, components * sizeof(ComponentRow)));
  KVCODEC_CHECK(memory_.synchronise());
  for (size_t group = 0; group < plans_.size(); ++group) KVCODEC_CHECK(take_codes(group));
  KVCODEC_CHECK(memory_.synchronise());
  for (size_t group = 0; group < plans_.size(); ++group) {
    const auto* codes = memory_.on_host<uint8_t>(codes_, first_component_[group] * header_.tokens);
    samples_[group].assign(codes,
                           codes + uint64_t{header_.groups[group].live_rows} * header_.tokens);
  }
  return ok_status();
}

// As finish_group(), from what the kernel summed of every row. Enqueues the copy of samples.
Status CalibratedPublish::take_codes(size_t index) {
  format::BasisGroup& group = header_.groups[index];
  const auto* rows = memory_.on_host<ComponentRow>(rows_, first_component_[index]);
  transform::CentroidSums centroids;
  group.live_rows = 0;
  for (uint32_t row = 0; row < components_[index].count; ++row) {
    if (rows[row].peak == 0) continue;
    group.live_rows = row + 1;
    for (size_t k = 0; k < 2; ++k) centroids.add_row(k, rows[row].sums[k], rows[row].counts[k]);
  }
  const std::array<float, 2> deltas = centroids.deltas();
  group.step = static_cast<float>(profile_.tier(header_.tier).step);
  std::copy(deltas.begin(), deltas.end(), group.delta);
  KVCODEC_TRY(const auto entries,
              lists_.fetch(index, memory_.on_host<uint32_t>(counts_)[index], memory_.stream()));
  escapes_[index] = sorted_escapes(entries, group.kind, plans_[index].rows.first_row);
  ChunkMemory::Place codes = codes_;
  codes.offset += first_component_[index] * header_.tokens;
  return memory_.fetch(codes, uint64_t{group.live_rows} * header_.tokens);
}

Status CalibratedPublish::measure() {
  for (size_t group = 0; group < plans_.size(); ++group) KVCODEC_CHECK(launch_measure(group));
  KVCODEC_CHECK(memory_.fetch(totals_, panels_.size() * 2 * sizeof(double)));
  KVCODEC_CHECK(memory_.synchronise());
  for (size_t i = 0; i < panels_.size(); ++i) {
    const size_t group = panels_[i].group;
    const auto* totals = memory_.on_host<double>(totals_, 2 * panels_of_group_ * group);
    const size_t panel = i - panels_of_group_ * group;
    distortions_[i] = {totals[panel], totals[panels_of_group_ + panel]};
    if (!profile_.groups()[group].block_metric()) continue;
    distortions_[i].noise = std::max(distortions_[i].noise, 0.0);
    distortions_[i].energy = std::max(distortions_[i].energy, 0.0);
  }
  return ok_status();
}

// Restores the group as a reader will, and takes its distance from the cache.
Status CalibratedPublish::launch_measure(size_t index) {
  const format::BasisGroup& group = header_.groups[index];
  const ProfileOnDevice::Group& on_device = on_device_->groups[index];
  const CUstream stream = memory_.stream();
  // NOLINTBEGIN(performance-no-int-to-ptr)
  const auto* mean = reinterpret_cast<const float*>(on_device.mean.data());
  const auto* basis = reinterpret_cast<const float*>(on_device.basis.data());
  // NOLINTEND(performance-no-int-to-ptr)
  restore::ComponentValuesArguments codes = {};
  codes.samples =
      memory_.on_device<const uint8_t>(codes_, first_component_[index] * header_.tokens);
  codes.values = memory_.on_device<float>(restored_);
  codes.step = group.step;
  codes.rows = group.live_rows;
  codes.tokens = header_.tokens;
  std::copy_n(group.delta, 2, codes.delta);
  KVCODEC_CHECK(device_.restore_kernels().run(codes, stream));
  restore::EscapeArguments escapes = {};
  escapes.escapes = lists_.of(index);
  escapes.values = codes.values;
  escapes.step = group.step;
  std::copy_n(group.delta, 2, escapes.delta);
  escapes.count = memory_.on_host<uint32_t>(counts_)[index];
  escapes.tokens = header_.tokens;
  KVCODEC_CHECK(device_.restore_kernels().run(escapes, stream));
  auto* restored = memory_.on_device<float>(weighed_);
  KVCODEC_CHECK(device_.restore_kernels().run(
      restore::ProductArguments{basis, mean, codes.values, restored, channels(index),
                                group.live_rows, header_.tokens},
      stream));
  auto* errors = memory_.on_device<float>(errors_);
  auto* values = memory_.on_device<float>(values_);
  const ValuesArguments read =
      values_arguments(source_of(index), header_, plans_[index], memory_, tables_);
  KVCODEC_CHECK(
      device_.kernels().run(ErrorsArguments{read.source, restored, read.cosines, read.sines,
                                            read.pairs, read.interleaved, errors, values},
                            stream));
  KVCODEC_CHECK(device_.kernels().run(
      CentreArguments{values, mean, nullptr, channels(index), header_.tokens, header_.sink_tokens},
      stream));
  KVCODEC_CHECK(launch_sums(index, errors, 2 * panels_of_group_ * index));
  return launch_sums(index, values, (2 * index + 1) * panels_of_group_);
}

// x M x of every panel, to totals_ from number `at` on.
Status CalibratedPublish::launch_sums(size_t index, const float* values, uint64_t at) {
  const CUstream stream = memory_.stream();
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  const auto* metric = reinterpret_cast<const float*>(on_device_->groups[index].metric.data());
  const float* other = values;
  const bool block = profile_.groups()[index].block_metric();
  if (block) {
    auto* weighed = memory_.on_device<float>(weighed_);
    const uint32_t dim = header_.shape.head_dim(plans_[index].kind);
    KVCODEC_CHECK(device_.kernels().run(
        AnalysisArguments{metric, values, weighed, dim, dim, header_.tokens, channels(index) / dim},
        stream));
    other = weighed;
  }
  auto* sums = memory_.on_device<double>(row_sums_);
  KVCODEC_CHECK(device_.kernels().run(
      RowProductsArguments{values, other, sums, channels(index), header_.tokens}, stream));
  return device_.kernels().run(
      PanelSumsArguments{sums, block ? nullptr : metric, memory_.on_device<double>(totals_, at),
                         channels(index), static_cast<uint32_t>(panels_of_group_)},
      stream);
}

}  // namespace kvcodec::publish
