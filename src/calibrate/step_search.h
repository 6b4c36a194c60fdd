// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "kvcodec/result.h"

namespace kvcodec::calibration {

// What one step was found to do to the validation texts.
struct StepPoint {
  double step = 0, kl = 0, bits_per_value = 0;
};

struct StepSearch {
  double tolerance = 0.1;  // ends at a KL within this part below the target
  int max_points = 10;
  double first_step = 1;
};

// The point with the largest step whose KL is at most `target`. KL grows about as a power of the
// step, so each next step is taken from the line through the two nearest points in logarithms,
// kept inside what is known to be too fine and too coarse. `points` has what was measured before
// and gets what is measured now: steps are never measured twice. internal where no step was fine
// enough, or KL is not a number.
Result<StepPoint> search_step(const std::function<Result<StepPoint>(double step)>& measure,
                              double target, const StepSearch& search,
                              std::vector<StepPoint>& points);

}  // namespace kvcodec::calibration
