// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "base/stopwatch.h"
#include "calibrate/calibration_plan.h"
#include "calibrate/calibration_state.h"
#include "calibrate/judge.h"
#include "kvcodec/calibrate.h"

namespace kvcodec::calibration {

// The stages of one calibration, in order. `model` is nullptr for dumps.
class CalibrationRun {
 public:
  CalibrationRun(CalibrationModel* model, Plan plan, const KvShape& shape, const Rope& rope,
                 const CalibrationOptions& options)
      : model_(model),
        plan_(std::move(plan)),
        shape_(shape),
        rope_(rope),
        options_(options),
        state_(plan_.fingerprint, shape, plan_.groups),
        judge_(model, options) {}

  Status resume();
  // Means, covariances and gradients of all windows.
  Status measure();
  // Covariances alone, of one dump.
  Status add_dump(const KvSource& kv);
  Status measure_noise();  // where there are no gradients
  Status fit();
  Judge& judge() { return judge_; }
  Status add_validation();
  Status find_steps();
  // The steps are these: bits, KL and noise of each are measured, and the basis is truncated.
  Status settle(const std::array<double, 3>& steps);
  CalibrationResult result(const std::string& name, const Digest& weights);

 private:
  Status add_window(size_t index, const KvSource& kv);
  Result<bool> gradients_fit(const Window& window, const KvSource& kv);
  // [C] or blocks, of all layers of a kind.
  Result<std::vector<std::vector<float>>> metrics() const;
  Result<std::vector<float>> gradient_metric(KvKind kind) const;
  std::vector<double> spread(KvKind kind) const;
  void truncate(ProfileFields& fields, double step) const;
  Result<Judgement> judge_step(double step);
  Status checkpoint(bool now);
  Status check_stop() const;
  void progress(std::string_view stage, size_t done, size_t total) const;
  void note(const std::string& text) const;
  void end_stage(const char* name);

  CalibrationModel* model_;
  Plan plan_;
  const KvShape shape_;
  const Rope rope_;
  const CalibrationOptions& options_;
  CalibrationState state_;
  Judge judge_;
  ProfileFields fields_;
  Stopwatch since_save_, since_stage_;
  std::vector<CalibrationResult::Stage> stages_;
};

}  // namespace kvcodec::calibration
