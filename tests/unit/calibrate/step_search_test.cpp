// SPDX-License-Identifier: Apache-2.0
#include "calibrate/step_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "unit/engines/code_of.h"

namespace kvcodec::calibration {
namespace {

// KL over steps .25 to 4 as measured for SmolLM2 (docs/calibration.md), a power between points.
double measured_kl(double step) {
  constexpr double steps[] = {0.5, 1, 2}, kls[] = {0.00471, 0.01315, 0.0409};
  const int i = step < 1 ? 0 : 1;
  const double slope = std::log(kls[i + 1] / kls[i]) / std::log(steps[i + 1] / steps[i]);
  return kls[i] * std::pow(step / steps[i], slope);
}

Result<StepPoint> measure(double step) { return StepPoint{step, measured_kl(step), 1 / step}; }

TEST(StepSearch, EndsJustBelowEveryTarget) {
  std::vector<StepPoint> points;
  for (double target : {0.009, 0.05, 0.0018, 1e-6, 3.0}) {
    const size_t before = points.size();
    const auto found = search_step(measure, target, {}, points);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_LE(found->kl, target);
    EXPECT_GE(found->kl, 0.9 * target);
    EXPECT_LE(points.size() - before, 8u) << target;
  }
}

TEST(StepSearch, UsesWhatWasMeasured) {
  std::vector<StepPoint> points = {{1, 0.0095, 1}, {1.2, 0.012, 0.9}};
  const auto never = [](double) -> Result<StepPoint> {
    ADD_FAILURE() << "measured again";
    return Error{ErrorCode::internal, ""};
  };
  const auto found = search_step(never, 0.01, {}, points);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->step, 1);
}

TEST(StepSearch, DoesNotBelieveAFallBeyondAStepThatWasTooCoarse) {
  std::vector<StepPoint> points = {{0.9, 0.0095, 1}, {1, 0.011, 1}, {2, 0.009, 0.5}};
  const auto found = search_step(measure, 0.01, {}, points);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->step, 0.9);
}

TEST(StepSearch, SaysWhereNoStepIsFineEnough) {
  std::vector<StepPoint> points;
  const auto floor = [](double step) -> Result<StepPoint> { return StepPoint{step, 0.005, 8}; };
  const auto found = search_step(floor, 0.0018, {}, points);
  ASSERT_EQ(code_of(found), ErrorCode::internal);
  EXPECT_NE(found.error().message.find("0.0018"), std::string::npos);
}

TEST(StepSearch, PassesErrorsOnAndRefusesNaN) {
  std::vector<StepPoint> points;
  const auto fails = [](double) -> Result<StepPoint> { return Error{ErrorCode::io, "disk"}; };
  EXPECT_EQ(code_of(search_step(fails, 0.01, {}, points)), ErrorCode::io);
  const auto nan = [](double step) -> Result<StepPoint> {
    return StepPoint{step, std::numeric_limits<double>::quiet_NaN(), 1};
  };
  EXPECT_EQ(code_of(search_step(nan, 0.01, {}, points)), ErrorCode::internal);
  EXPECT_TRUE(points.empty());
}

}  // namespace
}  // namespace kvcodec::calibration
