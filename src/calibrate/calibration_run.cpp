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
      const size_t half = 2 * half_of(i);
      const WindowMoments moments{{&state_.costs[half], &state_.costs[half + 1]}, &state_.queries};
      KVCODEC_CHECK(add_gradients(*model_->weights(), kv, window.tokens, options_,
                                  options_.seed + i, moments));
    }
    state_.windows_done = i + 1;
    KVCODEC_CHECK(checkpoint(false));
  }
  progress("measure", count, count);
  KVCODEC_CHECK(checkpoint(true));
  end_stage("measure");
  return ok_status();
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
