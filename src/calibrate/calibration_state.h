// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "calibrate/moments.h"
#include "calibrate/sensitivity.h"
#include "calibrate/step_search.h"
#include "kvcodec/key.h"

namespace kvcodec::calibration {

// Everything a calibration has found so far. The file is for the same program on the same kind of
// machine: a state of other inputs, or one that is damaged, is not used.
struct CalibrationState {
  Digest fingerprint;
  uint64_t windows_done = 0;
  bool gradients = false;        // sensitivities are from gradients
  std::vector<Moments> moments;  // by group of the plan
  // Of gradients, by half of the texts and K, V: [2 * half + kind]. Halves tell how far to believe
  // them (metric_fit.h).
  std::vector<HeadMoments> costs;
  HeadMoments queries;            // as the prefix's keys meet them
  InjectedCosts injected;         // empty: not measured
  std::vector<StepPoint> points;  // steps judged

  CalibrationState(const Digest& of, const KvShape& shape, std::span<const GroupPlace> groups);
};

// Writes aside and renames: the file is there whole or as it was.
Status save_state(const std::string& path, const CalibrationState& state);
// Fills a state of the same plan from the file. False where there is no file, or one of other
// inputs. corrupt for a damaged one.
Result<bool> load_state(const std::string& path, CalibrationState& state);

}  // namespace kvcodec::calibration
