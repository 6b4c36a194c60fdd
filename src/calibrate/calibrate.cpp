// SPDX-License-Identifier: Apache-2.0
#include "kvcodec/calibrate.h"

#include <cblas.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "base/stopwatch.h"
#include "calibrate/calibration_run.h"

namespace kvcodec {
namespace {

using calibration::GroupPlace;
using calibration::Plan;

// BLAS rounds by the number of its threads: it is that of the call, whatever the process has.
class BlasThreads {
 public:
  explicit BlasThreads(int threads) : before_(openblas_get_num_threads()) {
    openblas_set_num_threads(resolve_threads(threads));
  }
  ~BlasThreads() { openblas_set_num_threads(before_); }
  BlasThreads(const BlasThreads&) = delete;
  BlasThreads& operator=(const BlasThreads&) = delete;

 private:
  const int before_;
};

// Steps where no KL can be measured, in root mean squares of a layer: about the noise that the
// tiers of a calibrated model have.
constexpr std::array<double, 3> kUnjudgedSteps = {0.35, 0.8, 2.0};
constexpr double kUsualPoints = 12;  // steps judged in a search of all tiers

uint64_t moments_bytes(const Plan& plan, const KvShape& shape) {
  uint64_t bytes = 0;
  for (const GroupPlace& g : plan.groups) {
    const uint64_t n = uint64_t{g.layers} * shape.channels(g.kind);
    bytes += n * n * sizeof(float);
  }
  return bytes;
}

}  // namespace

Result<CalibrationEstimate> estimate_calibration(CalibrationModel& model,
                                                 std::span<const CalibrationText> texts,
                                                 std::span<const CalibrationText> validation,
                                                 const CalibrationOptions& options) {
  KVCODEC_TRY(const Plan plan, calibration::make_plan(model, texts, validation, options));
  const KvShape& shape = model.facts().shape;
  CalibrationEstimate e;
  e.tokens = plan.tokens;
  e.tokens_needed = plan.tokens_needed;
  for (const auto& window : plan.validation) e.validation_tokens += window.tokens.size();
  const uint64_t most = calibration::most_channels(shape, plan.groups);
  const uint64_t moments = moments_bytes(plan, shape);
  e.state_bytes = moments / 2;
  // Moments and bases, five matrices of LAPACK and its caller, the validation's caches and logits,
  // and one profile as bytes and parsed.
  e.memory_bytes =
      4 * moments + 5 * most * most * sizeof(float) + e.validation_tokens * shape.token_bytes();
  if (model.weights() != nullptr) {
    const DecoderConfig& c = model.weights()->config();
    e.memory_bytes +=
        sizeof(float) * (uint64_t{c.vocabulary} *
                         (c.width + 3 * 96 + plan.validation.size() * options.continuation_tokens));
  }
  if (plan.windows.empty()) return e;
  const auto probe =
      std::span(plan.windows[0].tokens).first(std::min<size_t>(plan.windows[0].tokens.size(), 256));
  Stopwatch watch;
  KVCODEC_TRY(const KvSource kv, model.prefill(probe));
  (void)kv;
  const double per_token = watch.seconds() / static_cast<double>(probe.size());
  const auto cube = static_cast<double>(most) * static_cast<double>(most) *
                    static_cast<double>(most) * static_cast<double>(plan.groups.size());
  // A backward pass and its forward one cost about six prefills of the continuation; eigenvectors
  // some 20 n^3 operations; a judged step codes, restores and continues the validation texts.
  const double gradients =
      6.0 * 96 * 2 * std::min<double>(options.sensitivity_texts, double(plan.windows.size()));
  e.seconds = per_token * (static_cast<double>(plan.tokens) + gradients) + cube * 20 / 4e10 +
              per_token * static_cast<double>(e.validation_tokens) * (1 + kUsualPoints / 4);
  return e;
}

Result<CalibrationResult> calibrate(CalibrationModel& model, std::span<const CalibrationText> texts,
                                    std::span<const CalibrationText> validation,
                                    const CalibrationOptions& options) {
  const BlasThreads threads(options.threads);
  const CalibrationModel::Facts& facts = model.facts();
  KVCODEC_TRY(Plan plan, calibration::make_plan(model, texts, validation, options));
  KVCODEC_CHECK(calibration::check_tokens(plan, facts.shape));
  calibration::CalibrationRun run(&model, std::move(plan), facts.shape, facts.rope, options);
  KVCODEC_CHECK(run.resume());
  KVCODEC_CHECK(run.measure());
  KVCODEC_CHECK(run.measure_noise());
  KVCODEC_CHECK(run.fit());
  KVCODEC_CHECK(run.add_validation());
  KVCODEC_CHECK(run.find_steps());
  return run.result(facts.name, facts.weights);
}

Result<CalibrationResult> calibrate_dumps(const CalibrationDumps& dumps,
                                          const CalibrationOptions& options) {
  const BlasThreads threads(options.threads);
  KVCODEC_CHECK(calibration::check_options(options));
  if (dumps.count < 2)
    return make_error(ErrorCode::invalid_argument,
                      "calibration: {} dumps: two are needed, one of them to validate",
                      dumps.count);
  Plan plan;
  plan.groups = calibration::plan_groups(dumps.shape, options);
  plan.tokens_needed =
      calibration::kTokensPerChannel * calibration::most_channels(dumps.shape, plan.groups);
  const size_t fitted = dumps.count - std::max<size_t>(1, dumps.count / 8);
  const uint64_t needed = plan.tokens_needed;
  calibration::CalibrationRun run(nullptr, std::move(plan), dumps.shape, dumps.rope, options);
  uint64_t tokens = 0;
  for (size_t i = 0; i < dumps.count; ++i) {
    if (options.stop.stop_requested())
      return make_error(ErrorCode::cancelled, "calibration: stopped after {} of {} dumps", i,
                        dumps.count);
    if (options.progress) options.progress("measure", i, dumps.count);
    KVCODEC_TRY(const KvSource kv, dumps.read(i));
    KvShape same = kv.geometry->shape;
    same.dtype = dumps.shape.dtype;
    if (same != dumps.shape)
      return make_error(ErrorCode::invalid_argument,
                        "calibration: dump {}: {} layers, {} KV heads of {} and {}: expected {}, "
                        "{}, {} and {}",
                        i, same.layers, same.kv_heads, same.key_dim, same.value_dim,
                        dumps.shape.layers, dumps.shape.kv_heads, dumps.shape.key_dim,
                        dumps.shape.value_dim);
    if (i < fitted) {
      tokens += kv.geometry->tokens - std::min(kv.geometry->tokens, options.sink_tokens);
      KVCODEC_CHECK(run.add_dump(kv));
    } else {
      KVCODEC_CHECK(run.judge().add_dump(kv));
    }
  }
  if (tokens < needed)
    return make_error(ErrorCode::invalid_argument,
                      "calibration: {} tokens in {} dumps (the last {} validate); {} are needed",
                      tokens, fitted, dumps.count - fitted, needed);
  KVCODEC_CHECK(run.fit());
  KVCODEC_CHECK(run.settle(kUnjudgedSteps));
  return run.result(dumps.model, dumps.weights);
}

}  // namespace kvcodec
