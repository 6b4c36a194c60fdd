// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/chunk_plan.h"
#include "kvcodec/profile.h"
#include "kvcodec/result.h"
#include "transform/rotation.h"

namespace kvcodec {

// The calibrated tiers with a profile's basis, in units of work that threads share: a *panel* is a
// group and up to kPanelTokens tokens. docs/format.md, "Calibrated tiers", has the formulas. All
// functions may be called for different panels (or groups) of one chunk at once.
inline constexpr uint32_t kPanelTokens = 64;

struct Panel {
  size_t group = 0;   // in the profile, the header and the plans, which have the same order
  TokenRange tokens;  // of the chunk
};
std::vector<Panel> plan_panels(size_t groups, uint32_t tokens);

// What the panels of a chunk share.
struct CalibratedContext {
  const Profile& profile;
  const format::Header& header;
  const std::vector<GroupPlan>& plans;
  const transform::RotationTable& turns;  // for the positions that the keys have, or shall have
};

// The first `count` components of a group, [count][row], padded as matrix products need it.
struct Components {
  size_t row = 0;
  uint32_t count = 0;
  std::vector<float> values;
};

// How many components of a group have codes other than zero at a step, but for rare ones: spreads
// beyond are below kSilentSpread of it. What they had is measured as noise, as all else is.
inline constexpr double kSilentSpread = 0.15;
uint32_t audible_components(const ProfileGroup& group, double step);

// Analysis of one panel, sinks as zeros: components from `first` to out.count. rows: its elements,
// [channels][tokens.count]. invalid_argument names the first number that is not finite.
Status analyse_panel(const CalibratedContext& context, const Panel& panel, const std::byte* rows,
                     uint32_t first, Components& out);

// Of a component with a code that is none: quantise_components()'s error.
Error component_too_large(const format::BasisGroup& group, uint32_t row);

// Codes of a group at a step: fills live_rows, step and deltas of `group`, [live_rows][tokens]
// samples and the escapes. invalid_argument where a value is too far off for any code.
Status quantise_components(const ProfileTier& tier, const Components& components, uint32_t tokens,
                           uint32_t first_row, format::BasisGroup& group,
                           std::vector<uint8_t>& samples, std::vector<format::Escape>& escapes);

// Where the samples of a group's live rows are: `at(row)` is that of token 0.
class LiveSamples {
 public:
  LiveSamples(const GroupPlan& plan, const format::Header& header,
              std::span<const PictureContent> contents)
      : plan_(&plan), contents_(contents), height_(header.max_picture_height) {}
  LiveSamples(const uint8_t* samples, size_t stride) : samples_(samples), stride_(stride) {}
  const uint8_t* at(uint32_t row) const {
    if (plan_ == nullptr) return samples_ + row * stride_;
    const PictureContent& content = contents_[plan_->symbols[row / height_]];
    return content.samples.data() + row % height_ * content.stride;
  }

 private:
  const GroupPlan* plan_ = nullptr;
  std::span<const PictureContent> contents_;
  uint32_t height_ = 0;
  const uint8_t* samples_ = nullptr;
  size_t stride_ = 0;
};

// The elements of one panel, sinks included: the inverse. escapes: sorted, those of the group
// among them.
void restore_panel(const CalibratedContext& context, const Panel& panel, const LiveSamples& samples,
                   std::span<const format::Escape> escapes, std::byte* rows);

// Sums over the values of a panel that are no sinks, under the profile's metric.
struct PanelDistortion {
  double noise = 0, energy = 0;  // of the error, of the centred exact values
};
PanelDistortion measure_panel(const CalibratedContext& context, const Panel& panel,
                              const std::byte* exact, const std::byte* restored);

}  // namespace kvcodec
