// SPDX-License-Identifier: Apache-2.0
// Targets of vectors that are no types to be members, and one that our baseline makes needless.
// NOLINTBEGIN(readability-identifier-naming)
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hevc/decoder_lanes.cpp"
// NOLINTEND(readability-identifier-naming)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <bit>
#include <memory>
#include <new>
#include <vector>

#include "hevc/decoder_variants.h"
#include "hevc/lane_residual-inl.h"
#include "hevc/slice_walk.h"

// The same syntax as decoder_reference.cpp, which explains it; as many pictures at once as a vector
// has lanes of 32 bits. Every lane is at a sub-block of its own that is coded: so none idles
// because another's is not, and a lane whose picture ends takes the next one. Sub-blocks are
// decoded together, what lies between them lane by lane.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
namespace kvcodec::hevc::decoding::HWY_NAMESPACE {

class LaneDecoder : LaneResidual {
 public:
  void decode(JobSource& source) {
    source_ = &source;
    active_ = 0;
    clear();
    for (int lane = 0; lane < kLanes; ++lane) begin_picture(lane);
    for (uint32_t round = 1; active_ != 0; ++round) {
      const uint32_t bad = decode_sub_blocks(bytes()) & active_;
      write_blocks();
      for_each(bad, [&](int lane) { set_aside(lane); });
      const uint32_t ends = step(bytes());
      for_each(bad, [&](int lane) {
        walks_[lane].fail(SliceFaultKind::general);
        finish_picture(lane);
      });
      for_each(ends, [&](int lane) { next_block(lane); });
      if (round % kLookEvery == 0) fill_idle_lanes();
    }
  }

 private:
  // Lane by lane: what vectors take from and give to the rest.
  using Reader = CabacReader<uint32_t, kLanes>;

  template <typename Do>
  static void for_each(uint32_t lanes, const Do& act) {
    for (; lanes != 0; lanes &= lanes - 1) act(std::countr_zero(lanes));
  }

  uint32_t base(int lane) const {
    return static_cast<uint32_t>(walks_[lane].window().bytes() - bytes());
  }
  const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(walks_); }

  Reader reader(int lane) {
    const uint32_t position = next_[lane] - waiting_[lane] - 8 * base(lane);
    return {walks_[lane].window().bytes(), position, range_[lane] >> 23, value_[lane] >> 23,
            &contexts_[0][lane]};
  }
  void put_back(int lane, const Reader& cabac) {
    value_[lane] = cabac.offset() << 23;
    range_[lane] = cabac.range() << 23;
    waiting_[lane] = ahead_[lane] = 0;
    next_[lane] = cabac.position() + 8 * base(lane);
  }

  // Others may have brought pictures since a lane found none.
  static constexpr uint32_t kLookEvery = 64;
  void fill_idle_lanes() {
    for (int lane = 0; lane < kLanes; ++lane) {
      if ((active_ >> lane & 1) == 0) begin_picture(lane);
    }
  }

  // Takes pictures until one has a sub-block to decode.
  void begin_picture(int lane) {
    SliceWalk& walk = walks_[lane];
    while (SliceJob* job = source_->take()) {
      walk.begin(*job);
      set_contexts(lane, initial_contexts(SliceType::p));
      statistic_[lane] = 0;
      persistent_rice_[lane] = job->parameters.persistent_rice ? ~0u : 0;
      Reader cabac(walk.window().bytes(), 9, 510, walk.first_offset(), &contexts_[0][lane]);
      if (walk.begin_block(cabac)) {
        active_ |= 1u << lane;
        put_back(lane, cabac);
        ready(lane, walk.sub_block(), walk.start());
        return;
      }
      source_->finish(*job);
    }
    active_ &= ~(1u << lane);
    idle(lane, 8 * base(lane));
  }

  void write_blocks() {
    for_each(written(), [&](int lane) {
      size_t stride;
      uint8_t* target = walks_[lane].target(static_cast<int>(sub_block_[lane]), stride);
      write_block(lane, target, stride);
    });
  }
  // From the end of a coding tree unit to the lane's next one that has coefficients.
  void next_block(int lane) {
    SliceWalk& walk = walks_[lane];
    Reader cabac = reader(lane);
    if (walk.next_block(cabac)) {
      put_back(lane, cabac);
      ready(lane, walk.sub_block(), walk.start());
    } else {
      finish_picture(lane);
    }
  }
  void finish_picture(int lane) {
    source_->finish(walks_[lane].job());
    begin_picture(lane);
  }

  JobSource* source_ = nullptr;
  uint32_t active_ = 0;  // lanes that have a picture
  SliceWalk walks_[kLanes];
};

void decode_lanes(JobSource& source) {
  // The jobs of others are in there too, so no exception: one lane less wide needs no memory.
  const std::unique_ptr<LaneDecoder> decoder(new (std::nothrow) LaneDecoder);
  decoder != nullptr ? decoder->decode(source) : kScalarDecoder.decode(source);
}

}  // namespace kvcodec::hevc::decoding::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#if HWY_ONCE
namespace kvcodec::hevc {

std::span<const DecoderOps> lane_decoders() {
  static const std::vector<DecoderOps> variants = [] {
    std::vector<DecoderOps> all;
    [[maybe_unused]] const int64_t targets = hwy::SupportedTargets();
#if HWY_TARGETS & HWY_NEON
    if (targets & HWY_NEON) all.push_back({"neon", 4, decoding::N_NEON::decode_lanes});
#endif
#if HWY_TARGETS & HWY_SSE4
    if (targets & HWY_SSE4) all.push_back({"sse4", 4, decoding::N_SSE4::decode_lanes});
#endif
#if HWY_TARGETS & HWY_AVX2
    if (targets & HWY_AVX2) all.push_back({"avx2", 8, decoding::N_AVX2::decode_lanes});
#endif
#if HWY_TARGETS & HWY_AVX3
    if ((targets & HWY_AVX3) && __builtin_cpu_supports("avx512cd"))
      all.push_back({"avx512", 16, decoding::N_AVX3::decode_lanes});
#endif
#if HWY_TARGETS & HWY_AVX3_DL
    if (targets & HWY_AVX3_DL) all.push_back({"avx512vbmi", 16, decoding::N_AVX3_DL::decode_lanes});
#endif
    return all;
  }();
  return variants;
}

}  // namespace kvcodec::hevc
#endif  // HWY_ONCE
