// SPDX-License-Identifier: Apache-2.0
// Compiled once for every target of Highway, this file included.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "hevc/encoder_variants.h"
#include "hevc/fast_cabac.h"
#include "hevc/lane_scratch.h"

// Ours are AVX2, both kinds of AVX-512, and NEON.
// NOLINTBEGIN(readability-identifier-naming)
#define HWY_WANT_AVX3_DL
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hevc/lane_encoder.cpp"
// NOLINTEND(readability-identifier-naming)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// Not for what Highway compiles besides: a vector of one lane.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

#include "hevc/lane_block-inl.h"
#include "hevc/lane_load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcodec::hevc::HWY_NAMESPACE {

class LaneEncoder {
 public:
  LaneEncoder(JobQueue& queue, size_t lanes, LaneScratch& scratch)
      : queue_(queue), lanes_(std::min(lanes, kLanes)), scratch_(scratch), blocks_(scratch) {}

  void run() {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      scratch_.low[lane % 2][lane / 2] = scratch_.waiting[lane] = 0;
      scratch_.range[lane] = 510;
      scratch_.at[lane] = idle_bytes_ + kIdleStart;
      scratch_.lanes[lane].job = nullptr;
      clear_block(scratch_, lane);
      if (lane < lanes_) take_job(lane);
    }
    while (skip_zero_blocks()) code_blocks();
  }

 private:
  // Codes units without residual until every lane that is not idle has one with. False where all
  // are idle.
  bool skip_zero_blocks() {
    while (true) {
      const Mask32 zero = lanes_where([&](const LaneState& lane) { return lane.zero; });
      if (!any(zero)) break;
      count_skipped_neighbours();
      Coder coder = load_coder(scratch_);
      blocks_.put_head(coder, zero, zero);
      end_blocks(coder, zero);
    }
    return any(lanes_where([](const LaneState&) { return true; }));
  }

  // Codes a unit with residual in every lane that is not idle.
  void code_blocks() {
    const Mask32 active = lanes_where([](const LaneState&) { return true; });
    count_skipped_neighbours();
    Coder coder = load_coder(scratch_);
    blocks_.put_head(coder, hn::AndNot(active, active), active);
    blocks_.put_unit(coder, active);
    end_blocks(coder, active);
  }

  // Lanes that are not idle and of which `test` holds.
  template <typename Test>
  Mask32 lanes_where(const Test& test) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const LaneState& state = scratch_.lanes[lane];
      scratch_.flags[lane] = state.job != nullptr && test(state) ? 1 : 0;
    }
    return hn::Ne(load32(scratch_.flags), hn::Zero(d32));
  }

  void count_skipped_neighbours() {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const LaneState& state = scratch_.lanes[lane];
      scratch_.flags[lane] = state.skipped[state.column] + state.skipped[state.column + 1];
    }
  }

  // end_of_slice_segment_flag, and the next unit.
  void end_blocks(Coder coder, Mask32 active) {
    const Mask32 ends =
        hn::And(active, lanes_where([](const LaneState& lane) { return lane.at_last_block(); }));
    put_terminate(coder, scratch_.at, ends, active);
    store_coder(coder, scratch_);
    hn::Store(hn::IfThenElseZero(active, set32(1)), d32, scratch_.flags);
    for (size_t i = 0; i < kLanes; ++i) {
      if (scratch_.flags[i] == 0) {
        if (scratch_.lanes[i].job == nullptr) scratch_.at[i] = idle_bytes_ + kIdleStart;
        continue;
      }
      LaneState& lane = scratch_.lanes[i];
      lane.skipped[lane.column + 1] = lane.zero;
      if (lane.at_last_block()) {
        finish_slice(lane, scratch_.at[i], scratch_.low[i % 2][i / 2], scratch_.waiting[i]);
        take_job(i);
        continue;
      }
      if (++lane.column == lane.columns) {
        lane.column = 0;
        ++lane.row;
      }
      begin_block(i);
    }
  }

  void take_job(size_t i) {
    LaneState& lane = scratch_.lanes[i];
    lane.job = queue_.take();
    if (lane.job == nullptr) {
      clear_block(scratch_, i);
      return;
    }
    const PictureView& picture = lane.job->picture;
    lane.columns = blocks_of(picture.width);
    lane.rows = blocks_of(picture.height);
    lane.column = lane.row = 0;
    std::memset(lane.skipped, 0, sizeof lane.skipped);
    const ContextStates initial = initial_contexts(SliceType::p);
    for (size_t c = 0; c < initial.size(); ++c) scratch_.states[c * kLanes + i] = initial[c];
    scratch_.rice_statistic[i] = 0;
    scratch_.rice_enabled[i] = lane.job->persistent_rice ? ~0u : 0;
    scratch_.low[i % 2][i / 2] = 0;
    scratch_.range[i] = 510;
    scratch_.waiting[i] = 0;
    scratch_.at[i] = lane.bytes.get();
    begin_block(i);
  }

  void begin_block(size_t i) {
    LaneState& lane = scratch_.lanes[i];
    reserve_block(lane, scratch_.at[i]);
    const PictureView& picture = lane.job->picture;
    lane.zero = !load_block(picture, lane.column * kBlock, lane.row * kBlock, i, scratch_);
  }

  static constexpr size_t kIdleStart = 8;

  JobQueue& queue_;
  const size_t lanes_;
  LaneScratch& scratch_;
  BlockCoder blocks_;
  uint8_t idle_bytes_[kIdleStart + kMaxBlockBytes] = {};  // what idle lanes flush
};

void encode_lanes(JobQueue& queue, size_t lanes, LaneScratch& scratch) {
  LaneEncoder(queue, lanes, scratch).run();
}

}  // namespace kvcodec::hevc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace kvcodec::hevc {
namespace {

// Idle lanes cost nearly as much as others, so that few pictures are coded faster one by one; the
// table below has the numbers. None for processors that were not at hand.
[[maybe_unused]] constexpr size_t kNeverMeasured = SIZE_MAX;

struct Candidate {
  int64_t target;
  EncoderOps encoder;
};

std::vector<EncoderOps> supported_encoders() {
  const std::vector<Candidate> candidates = {
#if HWY_TARGETS & HWY_NEON
    {HWY_NEON, {"neon", 4, kNeverMeasured, N_NEON::encode_lanes}},
#endif
#if HWY_TARGETS & HWY_AVX2
    {HWY_AVX2, {"avx2", 8, 4, N_AVX2::encode_lanes}},
#endif
#if HWY_TARGETS & HWY_AVX3
    {HWY_AVX3, {"avx512", 16, 3, N_AVX3::encode_lanes}},
#endif
#if HWY_TARGETS & HWY_AVX3_DL
    {HWY_AVX3_DL, {"avx512vbmi", 16, 3, N_AVX3_DL::encode_lanes}},
#endif
  };
  std::vector<EncoderOps> supported;
  for (const Candidate& candidate : candidates) {
    if ((hwy::SupportedTargets() & candidate.target) != 0) supported.push_back(candidate.encoder);
  }
  return supported;
}

}  // namespace

std::span<const EncoderOps> lane_encoders() {
  static const std::vector<EncoderOps> encoders = supported_encoders();
  return encoders;
}

}  // namespace kvcodec::hevc
#endif
