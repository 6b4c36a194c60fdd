// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "calibrate/calibration_run.h"

// The steps of the tiers.
namespace kvcodec::calibration {
namespace {

// Components whose spread is below this part of a step have practically no code but zero: with a
// dead zone of 0.6, a normal number is beyond three spreads once in 370.
constexpr double kSilentSpread = 0.2;
constexpr size_t kUsualPoints = 12;                     // of a search of all tiers
constexpr size_t kHigh = 0, kBalanced = 1, kSmall = 2;  // tier_index

}  // namespace

void CalibrationRun::truncate(ProfileFields& fields, double step) const {
  const double least = std::pow(kSilentSpread * step, 2);
  for (ProfileGroup& group : fields.groups) truncate_components(group, least);
}

// Judges the profile as it would be with this step alone, written and read: without the components
// that are silent at it, judging is quicker.
Result<Judgement> CalibrationRun::judge_step(double step) {
  ProfileFields fields = fields_;
  truncate(fields, step);
  for (ProfileTier& tier : fields.tiers)
    tier = {.step = step, .dead_zone = options_.dead_zone, .bits_per_value = 0, .kl = 0};
  KVCODEC_TRY(const std::vector<std::byte> bytes, serialise_profile(fields));
  fields = {};
  KVCODEC_TRY(const Profile profile, Profile::parse(bytes));
  return judge_.judge(profile);
}

// What the tiers with these steps will do, and the profile's last form.
Status CalibrationRun::settle(const std::array<double, 3>& steps) {
  truncate(fields_, steps[0]);
  std::array<ProfileTier, 3> tiers;
  for (size_t tier = 0; tier < tiers.size(); ++tier) {
    KVCODEC_CHECK(check_stop());
    KVCODEC_TRY(const Judgement judged, judge_step(steps[tier]));
    for (size_t g = 0; g < fields_.groups.size(); ++g)
      fields_.groups[g].expected_noise[tier] = judged.noise[g];
    tiers[tier] = {.step = steps[tier],
                   .dead_zone = options_.dead_zone,
                   .bits_per_value = judged.bits_per_value,
                   .kl = judged.kl};
  }
  fields_.tiers = tiers;
  end_stage("steps");
  return ok_status();
}

Status CalibrationRun::find_steps() {
  const auto& kl = options_.kl;
  std::array<double, 3> steps{};
  size_t points = 0;
  const auto measure = [&](double step) -> Result<StepPoint> {
    KVCODEC_CHECK(check_stop());
    ++points;
    progress("steps", points, std::max(points + 1, kUsualPoints));
    KVCODEC_TRY(const Judgement judged, judge_step(step));
    return StepPoint{step, judged.kl, judged.bits_per_value};
  };
  // From the middle: each search begins with what the one before has measured.
  for (size_t tier : {kBalanced, kSmall, kHigh}) {
    KVCODEC_TRY(const StepPoint found, search_step(measure, kl[tier], {}, state_.points));
    steps[tier] = found.step;
    KVCODEC_CHECK(checkpoint(true));
  }
  return settle(steps);
}

}  // namespace kvcodec::calibration
