// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "calibrate/moments.h"
#include "kvcodec/profile.h"

namespace kvcodec::calibration {

// Which group of a profile is fitted: kind, first_layer and layers.
struct GroupPlace {
  KvKind kind = KvKind::key;
  uint32_t first_layer = 0, layers = 0;
};

// The least part of its own mean, or for a block of its largest eigenvalue, that a metric is
// raised to: what no noise was seen to hurt may still be hurt by much of it.
inline constexpr double kMetricFloor = 1e-4;

// The basis that compacts under a metric: with M the metric and C the covariance, the eigenvectors
// U of M^(1/2) C M^(1/2) give S = U^T M^(-1/2), so that S M S^T = I, and the components of
// S M (x - mean) are uncorrelated (Karhunen-Loeve in the coordinates where all noise costs the
// same). `metric` is [C] or, as blocks of `block` channels, [C / block][block][block]: symmetric,
// positive semidefinite. All C components are kept, in descending order of variance; channels that
// never vary end in components of variance zero. Requires moments of at least two tokens.
Result<ProfileGroup> fit_group(const Moments& moments, const GroupPlace& place,
                               std::vector<float> metric, size_t block);

// Drops the components whose variance is below that of `least`; keeps one at least.
void truncate_components(ProfileGroup& group, double least);

}  // namespace kvcodec::calibration
