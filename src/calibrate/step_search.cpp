// SPDX-License-Identifier: Apache-2.0
#include "calibrate/step_search.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace kvcodec::calibration {
namespace {

// d log KL / d log step where only one point is known: noise is about step^2, less where most
// codes are zero.
constexpr double kUsualSlope = 1.8;
constexpr double kLeastKl = 1e-9;

// The points beside the target: finer (KL at most target) and coarser, nullptr where none is.
struct Bracket {
  const StepPoint* finer = nullptr;
  const StepPoint* coarser = nullptr;
};

Bracket bracket(const std::vector<StepPoint>& points, double target) {
  Bracket found;
  for (const StepPoint& p : points) {
    if (p.kl > target) {
      if (found.coarser == nullptr || p.step < found.coarser->step) found.coarser = &p;
    }
  }
  for (const StepPoint& p : points) {
    // Noise may make KL fall where the step grows: what lies beyond a step that was too coarse
    // is not believed.
    if (p.kl > target || (found.coarser != nullptr && p.step > found.coarser->step)) continue;
    if (found.finer == nullptr || p.step > found.finer->step) found.finer = &p;
  }
  return found;
}

double next_step(const Bracket& near, double aim) {
  const auto from = [aim](const StepPoint& p) {
    const double ratio = aim / std::max(p.kl, kLeastKl);
    return p.step * std::clamp(std::pow(ratio, 1 / kUsualSlope), 0.125, 8.0);
  };
  if (near.finer == nullptr) return from(*near.coarser);
  if (near.coarser == nullptr) return from(*near.finer);
  const double low = std::log(near.finer->step), high = std::log(near.coarser->step);
  const double low_kl = std::log(std::max(near.finer->kl, kLeastKl));
  const double high_kl = std::log(near.coarser->kl);
  const double part = (std::log(aim) - low_kl) / (high_kl - low_kl);
  return std::exp(low + std::clamp(part, 0.1, 0.9) * (high - low));
}

}  // namespace

Result<StepPoint> search_step(const std::function<Result<StepPoint>(double step)>& measure,
                              double target, const StepSearch& search,
                              std::vector<StepPoint>& points) {
  const double aim = target * (1 - search.tolerance / 2);
  for (int i = 0; i < search.max_points; ++i) {
    const Bracket near = bracket(points, target);
    if (near.finer != nullptr && near.finer->kl >= target * (1 - search.tolerance)) break;
    const bool nothing = near.finer == nullptr && near.coarser == nullptr;
    const double step = nothing ? search.first_step : next_step(near, aim);
    KVCODEC_TRY(const StepPoint point, measure(step));
    if (!std::isfinite(point.kl))
      return make_error(ErrorCode::internal, "calibration: step {}: KL is {}", step, point.kl);
    points.push_back(point);
  }
  const Bracket near = bracket(points, target);
  if (near.finer == nullptr)
    return make_error(
        ErrorCode::internal,
        "calibration: no step keeps KL at {} or less after {} tries; the finest was "
        "{} with {}; an engine that rounds activations has a KL of its own: calibrate "
        "the model with F16 or F32 weights",
        target, points.size(), near.coarser->step, near.coarser->kl);
  return *near.finer;
}

}  // namespace kvcodec::calibration
