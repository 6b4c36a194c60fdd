// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibration_run.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "calibrate/kv_rows.h"

namespace kvcodec::calibration {
namespace {

constexpr double kSaveSeconds = 60;
// KL of the engine's and our own predictions from one cache. Quantised weights are multiplied
// with rounded activations there, and not here: 0.001 to 0.01.
constexpr double kMostMismatch = 0.05;
// Added to the diagonal of a head's metric, as a part of its mean: directions in which gradients
// are small now may not be so under larger noise. Measured: docs/calibration.md.
constexpr double kMetricRidge = 0.05;
constexpr uint32_t kNoiseTexts = 2;

}  // namespace

void CalibrationRun::progress(std::string_view stage, size_t done, size_t total) const {
  if (options_.progress) options_.progress(stage, done, total);
}

void CalibrationRun::note(const std::string& text) const {
  if (options_.note) options_.note(text);
}

void CalibrationRun::end_stage(const char* name) {
  stages_.push_back({name, since_stage_.seconds()});
  since_stage_ = {};
}

Status CalibrationRun::check_stop() const {
  if (!options_.stop.stop_requested()) return ok_status();
  return make_error(ErrorCode::cancelled, "calibration: stopped after {} of {} texts",
                    state_.windows_done, plan_.windows.size());
}

Status CalibrationRun::checkpoint(bool now) {
  if (options_.state_path.empty() || (!now && since_save_.seconds() < kSaveSeconds))
    return ok_status();
  KVCODEC_CHECK(save_state(options_.state_path, state_));
  since_save_ = {};
  return ok_status();
}

Status CalibrationRun::resume() {
  if (options_.state_path.empty()) return ok_status();
  KVCODEC_TRY(const bool found, load_state(options_.state_path, state_));
  if (found)
    note(fmt::format("goes on from {}: {} of {} texts, {} steps judged", options_.state_path,
                     state_.windows_done, plan_.windows.size(), state_.points.size()));
  return ok_status();
}

Status CalibrationRun::add_dump(const KvSource& kv) {
  const uint32_t tokens = kv.geometry->tokens;
  if (tokens <= options_.sink_tokens) return ok_status();
  const TokenRange range{options_.sink_tokens, tokens - options_.sink_tokens};
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    const GroupPlace& place = plan_.groups[g];
    KVCODEC_TRY(const std::vector<float> rows,
                unrotated_rows(kv, place.kind, place.first_layer, place.layers, range, rope_));
    state_.moments[g].add(rows.data(), range.count, state_.moments[g].channels());
  }
  return ok_status();
}

Result<bool> CalibrationRun::gradients_fit(const Window& window, const KvSource& kv) {
  if (model_->weights() == nullptr) {
    note("the gradients of this architecture are not known: noise is injected instead");
    return false;
  }
  KVCODEC_TRY(const double mismatch, decoder_mismatch(*model_, kv, window.tokens));
  if (mismatch <= kMostMismatch) return true;
  note(
      fmt::format("our computation of this model is off by a KL of {:.3f}: noise is injected "
                  "instead of gradients",
                  mismatch));
  return false;
}

Status CalibrationRun::measure() {
  const size_t count = plan_.windows.size();
  for (size_t i = state_.windows_done; i < count; ++i) {
    progress("measure", i, count);
    KVCODEC_CHECK(check_stop().ok() ? ok_status() : checkpoint(true));
    KVCODEC_CHECK(check_stop());
    const Window& window = plan_.windows[i];
    KVCODEC_TRY(KvSource kv, model_->prefill(window.tokens));
    if (i == 0) {
      KVCODEC_TRY(state_.gradients, gradients_fit(window, kv));
      KVCODEC_TRY(kv, model_->prefill(window.tokens));
    }
    KVCODEC_CHECK(add_dump(kv));
    if (state_.gradients && i < options_.sensitivity_texts) {
      HeadMoments moments[2] = {std::move(state_.costs[0]), std::move(state_.costs[1])};
      const Status added = add_gradients(*model_->weights(), kv, window.tokens, options_,
                                         options_.seed + i, moments);
      state_.costs[0] = std::move(moments[0]);
      state_.costs[1] = std::move(moments[1]);
      KVCODEC_CHECK(added);
    }
    state_.windows_done = i + 1;
    KVCODEC_CHECK(checkpoint(false));
  }
  progress("measure", count, count);
  KVCODEC_CHECK(checkpoint(true));
  end_stage("measure");
  return ok_status();
}

std::vector<double> CalibrationRun::spread(KvKind kind) const {
  const size_t dim = shape_.head_dim(kind);
  std::vector<double> result;
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    if (plan_.groups[g].kind != kind) continue;
    const Moments& m = state_.moments[g];
    const auto tokens = static_cast<double>(m.tokens());
    for (size_t c = 0; c < m.channels(); ++c) {
      const double mean = m.sum()[c] / tokens;
      const double variance = m.products()[c * m.channels() + c] / tokens - mean * mean;
      if (c % dim == 0) result.push_back(0);
      result.back() += std::max(variance, 0.0) / static_cast<double>(dim);
    }
  }
  return result;
}

Status CalibrationRun::measure_noise() {
  if (state_.gradients || model_ == nullptr || !state_.injected.costs[0].empty())
    return ok_status();
  const std::vector<double> spreads[2] = {spread(KvKind::key), spread(KvKind::value)};
  const size_t count = std::min<size_t>(kNoiseTexts, plan_.windows.size());
  KVCODEC_TRY(state_.injected,
              inject_noise(*model_, std::span(plan_.windows).first(count), spreads, options_));
  KVCODEC_CHECK(checkpoint(true));
  end_stage("noise");
  return ok_status();
}

std::vector<std::vector<float>> CalibrationRun::metrics() const {
  std::vector<std::vector<float>> result(2);
  for (KvKind kind : kKvKinds) {
    const auto index = static_cast<size_t>(kind);
    const size_t dim = shape_.head_dim(kind);
    std::vector<float>& metric = result[index];
    if (state_.gradients) {
      const double scale = 1 / static_cast<double>(state_.costs[index].tokens());
      metric = state_.costs[index].sums();
      for (float& x : metric) x = static_cast<float>(x * scale);
      for (size_t b = 0; b < metric.size(); b += dim * dim) {
        double trace = 0;
        for (size_t i = 0; i < dim; ++i) trace += metric[b + i * (dim + 1)];
        for (size_t i = 0; i < dim; ++i)
          metric[b + i * (dim + 1)] += static_cast<float>(kMetricRidge * trace / double(dim));
      }
      continue;
    }
    const std::vector<double> spreads = spread(kind);
    for (size_t head = 0; head < spreads.size(); ++head) {
      const bool known = !state_.injected.costs[index].empty();
      // Without a model noise costs what it is of the spread of its layer.
      double layer_spread = 0;
      for (size_t h = 0; h < shape_.kv_heads; ++h)
        layer_spread += spreads[head / shape_.kv_heads * shape_.kv_heads + h] / shape_.kv_heads;
      const double cost = known              ? state_.injected.costs[index][head]
                          : layer_spread > 0 ? 1 / layer_spread
                                             : 0;
      metric.insert(metric.end(), dim, static_cast<float>(cost));
    }
  }
  return result;
}

Status CalibrationRun::fit() {
  fields_.shape = shape_;
  fields_.rope = rope_;
  std::vector<std::vector<float>> all = metrics();
  // One factor for all, so that a step is a number around 1: the geometric mean of the diagonals.
  double logs = 0, count = 0;
  for (KvKind kind : kKvKinds) {
    const auto& metric = all[static_cast<size_t>(kind)];
    const size_t dim = shape_.head_dim(kind), stride = state_.gradients ? dim : 1;
    for (size_t i = 0; i < metric.size(); ++i) {
      const bool diagonal = stride == 1 || i / dim % dim == i % dim;
      if (!diagonal || !(metric[i] > 0)) continue;
      logs += std::log(double{metric[i]});
      count += 1;
    }
  }
  const auto scale = static_cast<float>(state_.gradients || !state_.injected.costs[0].empty()
                                            ? std::exp(-logs / std::max(count, 1.0))
                                            : 1);
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    progress("fit", g, plan_.groups.size());
    KVCODEC_CHECK(check_stop());
    const GroupPlace& place = plan_.groups[g];
    const size_t dim = shape_.head_dim(place.kind), block = state_.gradients ? dim : 1;
    const size_t channels = state_.moments[g].channels();
    const auto& kind = all[static_cast<size_t>(place.kind)];
    const size_t first = size_t{place.first_layer} * shape_.channels(place.kind) * block;
    std::vector<float> metric(kind.begin() + static_cast<std::ptrdiff_t>(first),
                              kind.begin() + static_cast<std::ptrdiff_t>(first + channels * block));
    for (float& x : metric) x *= scale;
    KVCODEC_TRY(ProfileGroup group, fit_group(state_.moments[g], place, std::move(metric), block));
    fields_.groups.push_back(std::move(group));
  }
  progress("fit", plan_.groups.size(), plan_.groups.size());
  end_stage("fit");
  return ok_status();
}

Status CalibrationRun::add_validation() {
  if (state_.gradients) judge_.use_weights();
  for (size_t i = 0; i < plan_.validation.size(); ++i) {
    progress("validate", i, plan_.validation.size());
    KVCODEC_CHECK(check_stop());
    KVCODEC_CHECK(judge_.add_text(plan_.validation[i]));
  }
  progress("validate", plan_.validation.size(), plan_.validation.size());
  end_stage("validate");
  return ok_status();
}

CalibrationResult CalibrationRun::result(const std::string& name, const Digest& weights) {
  CalibrationResult result;
  fields_.model = name;
  fields_.weights = weights;
  fields_.calibration = options_.provenance;
  result.profile = std::move(fields_);
  result.stages = std::move(stages_);
  return result;
}

}  // namespace kvcodec::calibration
