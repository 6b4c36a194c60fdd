// SPDX-License-Identifier: Apache-2.0
// Once a target, as lane_ops-inl.h.
#if defined(KVCODEC_LANE_STATE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCODEC_LANE_STATE_INL_H
#undef KVCODEC_LANE_STATE_INL_H
#else
#define KVCODEC_LANE_STATE_INL_H
#endif

#include <cstdint>
#include <cstring>

#include "hevc/lane_reader-inl.h"
#include "hevc/lane_tables.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
namespace kvcodec::hevc::decoding::HWY_NAMESPACE {

HWY_INLINE M mask_of(V all_ones) { return hn::MaskFromVec(all_ones); }
HWY_INLINE V vec_of(M mask) { return hn::VecFromMask(kD, mask); }
HWY_INLINE uint32_t bits_of(M mask) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(kD, mask, bytes);
  return bytes[0] | static_cast<uint32_t>(bytes[1]) << 8;
}

// One sub-block of every lane (the part of residual_coding, 7.3.8.11, for a coded sub-block), and
// the way to the next: the arithmetic decoder, contexts and statistics.
class LaneResidual {
 protected:
  // Contexts of what is outside of sub-blocks, by Context; those inside are four in a word.
  static constexpr int kOutside = kSignificantDc;

  void clear();
  // A lane without a picture: it has no coefficients, and reads where there is memory.
  void idle(int lane, uint32_t position);
  void set_contexts(int lane, const ContextStates& states);
  // The last sub-block and coefficient of a block, which a lane decodes next.
  void ready(int lane, int sub_block, int start);
  // Levels of all lanes that are ready into mask_ (coefficients by scan position) and levels_.
  // Lanes where one is none of an 8-bit sample are given.
  uint32_t decode_sub_blocks(const uint8_t* bytes);
  // From there to the next coded sub-block of the block, which is then ready; lanes that are still
  // on their way go on in the next call. Lanes whose block ends are given.
  uint32_t step(const uint8_t* bytes);
  // A lane that step() leaves alone.
  void set_aside(int lane) { live_[lane] = 0; }
  // Lanes that decode_sub_blocks() gave coefficients.
  uint32_t written() const { return bits_of(hn::Ne(load(mask_), hn::Zero(kD))); }
  // Writes what decode_sub_blocks() gave a lane that has coefficients.
  void write_block(int lane, uint8_t* target, size_t stride) const;

  // As in LaneReader.
  alignas(64) uint32_t value_[kLanes], range_[kLanes], waiting_[kLanes], next_[kLanes];
  alignas(64) uint32_t ahead_[kLanes];
  alignas(64) uint32_t contexts_[kOutside][kLanes];
  alignas(64) uint32_t statistic_[kLanes];        // StatCoeff[3]
  alignas(64) uint32_t persistent_rice_[kLanes];  // all ones or 0
  alignas(64) uint32_t mask_[kLanes];
  alignas(64) uint32_t sub_block_[kLanes];  // of the lane, in scan order

 private:
  // That few lanes may be on their way while the others decode a sub-block.
  static constexpr size_t kMostOnWay = kLanes / 8;

  HWY_INLINE LaneReader reader(const uint8_t* bytes) const;
  HWY_INLINE void put_back(const LaneReader& cabac);
  HWY_INLINE V significance(LaneReader& cabac);
  HWY_INLINE M levels(LaneReader& cabac, V mask);
  HWY_INLINE M signs_and_remaining(LaneReader& cabac, V count, V greater1, V rest, V lowest);

  // Contexts, from the lowest byte on: of sig_coeff_flag in the first sub-block (the highest is
  // that of DC) and in others; of coeff_abs_level_greater1_flag by set; of greater2 by set.
  alignas(64) uint32_t significant_[2][kLanes], greater1_[4][kLanes], greater2_[kLanes];
  alignas(64) uint32_t live_[kLanes];     // all ones where the lane has a picture
  alignas(64) uint32_t history_[kLanes];  // coded_sub_block_flags, the last one lowest
  // Of the sub-block: position of the block's last level, 16 where that was before, 0 where the
  // lane has none; contexts of significance (LaneTables); whether it is another than the first.
  alignas(64) uint32_t start_[kLanes], pattern_[kLanes], other_[kLanes];
  alignas(64) uint32_t seen_[kLanes];        // whether the sub-block before had a level above 1
  alignas(64) uint32_t flag_[kLanes];        // whether there is a sub-block
  alignas(64) uint32_t levels_[4 * kLanes];  // by lane, four to a word; see level_words()
};

inline void LaneResidual::clear() {
  // Idle lanes run along: their contexts must be states, their values anything.
  std::memset(this, 0, sizeof *this);
}

inline void LaneResidual::idle(int lane, uint32_t position) {
  value_[lane] = 0;
  range_[lane] = 510u << 23;
  waiting_[lane] = 0;
  ahead_[lane] = 0;
  next_[lane] = position;
  mask_[lane] = 0;
  sub_block_[lane] = 1;
  live_[lane] = 0;
  start_[lane] = 0;
  pattern_[lane] = 0xaaaaaaaa;
  other_[lane] = ~0u;
  flag_[lane] = 0;
}

inline void LaneResidual::set_contexts(int lane, const ContextStates& states) {
  const auto word = [&](int first) {
    uint32_t bytes = 0;
    for (int i = 0; i < 4; ++i) bytes |= static_cast<uint32_t>(states[first + i]) << 8 * i;
    return bytes;
  };
  for (int i = 0; i < kOutside; ++i) contexts_[i][lane] = states[i];
  significant_[0][lane] = (word(kSignificant) & 0xffffff) | states[kSignificantDc] << 24;
  significant_[1][lane] = word(kSignificant + 3) & 0xffffff;
  for (int set = 0; set < 4; ++set) greater1_[set][lane] = word(kGreater1 + 4 * set);
  greater2_[lane] = word(kGreater2);
}

inline void LaneResidual::ready(int lane, int sub_block, int start) {
  const bool other = sub_block > 0;
  live_[lane] = ~0u;
  sub_block_[lane] = static_cast<uint32_t>(sub_block);
  history_[lane] = 1;
  start_[lane] = static_cast<uint32_t>(start);
  mask_[lane] = 1u << start;
  seen_[lane] = 0;
  flag_[lane] = ~0u;
  other_[lane] = other ? ~0u : 0;
  pattern_[lane] = kLaneTables.patterns[other ? 4 : 0];
}

HWY_INLINE LaneReader LaneResidual::reader(const uint8_t* bytes) const {
  return {load(value_), load(range_), load(waiting_), load(next_), load(ahead_), bytes};
}

HWY_INLINE void LaneResidual::put_back(const LaneReader& cabac) {
  hn::Store(cabac.value, kD, value_);
  hn::Store(cabac.range, kD, range_);
  hn::Store(cabac.waiting, kD, waiting_);
  hn::Store(cabac.next, kD, next_);
  hn::Store(cabac.ahead, kD, ahead_);
}

inline uint32_t LaneResidual::step(const uint8_t* bytes) {
  LaneReader cabac = reader(bytes);
  const V zero = hn::Zero(kD), one = cabac.one;
  V sub_block = load(sub_block_), history = load(history_), neighbours = zero;
  V rows[2] = {load(contexts_[kCodedSubBlock]), load(contexts_[kCodedSubBlock + 1])};
  const M live = mask_of(load(live_)), ends = hn::And(live, hn::Eq(sub_block, zero));
  M on_way = hn::AndNot(ends, live);
  do {
    sub_block = hn::Sub(sub_block, hn::And(vec_of(on_way), one));
    const V place = lookup64(kLaneTables.neighbour_places, sub_block);
    const V near = hn::And(hn::Shr(history, hn::And(place, set(31))), hn::ShiftRight<8>(place));
    const M last = hn::Eq(sub_block, zero), asks = hn::AndNot(last, on_way);
    const M second = hn::Ne(near, zero);
    V state = select(second, rows[1], rows[0]);
    cabac.need_one();
    const V bin = cabac.get<false>(state, vec_of(asks));
    rows[0] = select(hn::AndNot(second, asks), state, rows[0]);
    rows[1] = select(hn::And(second, asks), state, rows[1]);
    const M coded = hn::And(on_way, hn::Or(last, hn::Eq(bin, one)));
    history = select(on_way, hn::Add(history, history), history);
    history = hn::Or(history, hn::And(vec_of(coded), one));
    neighbours = select(coded, near, neighbours);
    on_way = hn::AndNot(coded, on_way);
  } while (hn::CountTrue(kD, on_way) > kMostOnWay);
  put_back(cabac);
  hn::Store(rows[0], kD, contexts_[kCodedSubBlock]);
  hn::Store(rows[1], kD, contexts_[kCodedSubBlock + 1]);
  hn::Store(sub_block, kD, sub_block_);
  hn::Store(history, kD, history_);

  const M decodes = hn::AndNot(hn::Or(ends, on_way), live);
  const V other = vec_of(hn::Ne(sub_block, zero));
  const V pattern =
      lookup16(kLaneTables.patterns, hn::Add(neighbours, hn::And(other, hn::Set(kD, 4))));
  hn::Store(hn::IfThenElseZero(decodes, set(16)), kD, start_);
  hn::Store(select(decodes, pattern, set(0xaaaaaaaa)), kD, pattern_);
  hn::Store(select(decodes, other, set(~0u)), kD, other_);
  hn::Store(vec_of(decodes), kD, flag_);
  hn::Store(zero, kD, mask_);
  return bits_of(ends);
}

}  // namespace kvcodec::hevc::decoding::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // include guard
