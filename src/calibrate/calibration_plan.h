// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calibrate/basis_fit.h"
#include "kvcodec/calibrate.h"

namespace kvcodec::calibration {

struct Window {
  std::string name;
  std::vector<int32_t> tokens;
};

// What will be computed: windows of the calibration texts, windows with a continuation of the
// validation texts, and the groups of the profile.
struct Plan {
  std::vector<Window> windows;
  std::vector<Window> validation;  // window_tokens + continuation_tokens, or fewer windowed ones
  std::vector<GroupPlace> groups;
  uint64_t tokens = 0, tokens_needed = 0;
  // Hash of all that the result depends on.
  Digest fingerprint;
};

// Fewer tokens than channels leave directions of which nothing was seen. A floor, not what is
// enough: that was not measured.
inline constexpr uint64_t kTokensPerChannel = 1;

std::vector<GroupPlace> plan_groups(const KvShape& shape, const CalibrationOptions& options);
uint64_t most_channels(const KvShape& shape, std::span<const GroupPlace> groups);
// invalid_argument where fewer than tokens_needed; says what to do.
Status check_tokens(const Plan& plan, const KvShape& shape);

// Everything checked and tokenised, but not whether there are enough tokens.
Result<Plan> make_plan(const CalibrationModel& model, std::span<const CalibrationText> texts,
                       std::span<const CalibrationText> validation,
                       const CalibrationOptions& options);
Status check_options(const CalibrationOptions& options);

// The half of the texts that text i is in: as the Thue-Morse sequence, so that kinds of text that
// take turns are in both.
inline size_t half_of(size_t i) { return static_cast<size_t>(std::popcount(i)) % 2; }

}  // namespace kvcodec::calibration
