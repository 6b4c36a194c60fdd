// SPDX-License-Identifier: Apache-2.0
// Once a target, as lane_ops-inl.h.
#if defined(KVCODEC_LANE_RESIDUAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCODEC_LANE_RESIDUAL_INL_H_
#undef KVCODEC_LANE_RESIDUAL_INL_H_
#else
#define KVCODEC_LANE_RESIDUAL_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hevc/lane_reader-inl.h"
#include "hevc/lane_tables.h"
#include "hevc/slice_walk.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
namespace kvcodec::hevc::decoding::HWY_NAMESPACE {

HWY_INLINE M mask_of(V all_ones) { return hn::MaskFromVec(all_ones); }
HWY_INLINE V vec_of(M mask) { return hn::VecFromMask(kD, mask); }

// One sub-block of every lane (the part of residual_coding, 7.3.8.11, for a coded sub-block), and
// what lanes have between two of them: the arithmetic decoder, contexts and statistics.
class LaneResidual {
 protected:
  void clear();
  // A lane without a picture: it has no coefficients, and reads where there is memory.
  void idle(int lane, uint32_t position);
  // The sub-block that a lane decodes next.
  void ready(int lane, const SliceWalk& walk);
  // Levels of all lanes into mask_ (coefficients by scan position) and levels_; bad_: all ones
  // where one is none of an 8-bit sample.
  void decode_sub_blocks(const uint8_t* bytes);
  // coded_sub_block_flag, into coded_, of lanes where that is all ones; second_: all ones where the
  // right or lower neighbour is coded.
  void coded_flags(const uint8_t* bytes);
  // Writes what decode_sub_blocks() gave a lane that has coefficients.
  void write_block(int lane, uint8_t* target, size_t stride) const;

  // As in LaneReader.
  alignas(64) uint32_t value_[kLanes], range_[kLanes], waiting_[kLanes], next_[kLanes];
  alignas(64) uint32_t contexts_[kContextCount][kLanes];
  alignas(64) uint32_t statistic_[kLanes];        // StatCoeff[3]
  alignas(64) uint32_t persistent_rice_[kLanes];  // all ones or 0
  alignas(64) uint32_t mask_[kLanes], bad_[kLanes], coded_[kLanes], second_[kLanes];

 private:
  V significance(LaneReader& cabac);
  void levels(LaneReader& cabac, V mask);
  void signs_and_remaining(LaneReader& cabac, V count, V greater1, V rest, V lowest);

  // Of the sub-block: position of the block's last level, or 16; contexts of significance
  // (LaneTables); whether it is another than the block's first, and whether the lane has a picture.
  alignas(64) uint32_t start_[kLanes], pattern_[kLanes], other_[kLanes], flag_[kLanes];
  alignas(64) uint32_t seen_[kLanes];        // whether the sub-block before had a level above 1
  alignas(64) uint32_t levels_[4 * kLanes];  // byte i % 4 of word i / 4: the i-th level
};

inline void LaneResidual::clear() {
  // Idle lanes run along: their contexts must be states, their values anything.
  std::memset(this, 0, sizeof *this);
}

inline void LaneResidual::idle(int lane, uint32_t position) {
  value_[lane] = 0;
  range_[lane] = 510u << 23;
  waiting_[lane] = 0;
  next_[lane] = position;
  start_[lane] = 0;
  mask_[lane] = 0;
  pattern_[lane] = 0xaaaaaaaa;
  other_[lane] = ~0u;
  flag_[lane] = 0;
}

inline void LaneResidual::ready(int lane, const SliceWalk& walk) {
  const bool other = walk.sub_block() > 0;
  start_[lane] = static_cast<uint32_t>(walk.start());
  mask_[lane] = 1u << walk.start() & 0xffff;
  if (walk.begins_block()) seen_[lane] = 0;
  flag_[lane] = ~0u;
  other_[lane] = other ? ~0u : 0;
  pattern_[lane] = kLaneTables.patterns[other ? 1 : 0][walk.neighbours()];
}

inline V LaneResidual::significance(LaneReader& cabac) {
  const V start = load(start_), pattern = load(pattern_), other = load(other_);
  const M in_first = hn::Not(mask_of(other));
  const auto row = [&](int i) HWY_ATTR { return contexts_[kSignificant + i]; };
  V mask = hn::Zero(kD);
  const V whole = set(16);
  if (hn::AllTrue(kD, hn::Eq(pattern, set(0xaaaaaaaa))) && !any(in_first) &&
      hn::AllTrue(kD, hn::Eq(start, whole))) {
    // All in the middle of dense blocks: one context.
    V state = load(row(5));
    const V all = set(~0u);
    for (int i = 0; i < 5; ++i) {
      cabac.need(3);
      for (int k = 0; k < 3; ++k) {
        mask = hn::Or(hn::Add(mask, mask), cabac.get<true>(state, all));
      }
    }
    const M known = hn::Eq(mask, hn::Zero(kD));
    const V active = vec_of(hn::Not(known));
    cabac.need(3);
    V last = state;
    const V bin = cabac.get<false>(last, active);
    state = select(known, state, last);
    mask = hn::Or(hn::Add(mask, mask), select(known, set(1), bin));
    hn::Store(state, kD, row(5));
    return mask;
  }
  V states[3];
  for (int k = 0; k < 3; ++k) states[k] = select(in_first, load(row(k)), load(row(3 + k)));
  for (int i = 15; i > 0; --i) {
    const M active = hn::Gt(start, set(static_cast<uint32_t>(i)));
    const M one = hn::TestBit(pattern, set(1u << 2 * i));
    const M two = hn::TestBit(pattern, set(2u << 2 * i));
    V state = select(two, states[2], select(one, states[1], states[0]));
    if (i % 3 == 0) cabac.need(3);
    const V bin = hn::And(cabac.get<false>(state, vec_of(active)), vec_of(active));
    mask = hn::Or(mask, hn::ShiftLeftSame(bin, i));
    states[2] = select(hn::And(active, two), state, states[2]);
    states[1] = select(hn::And(active, one), state, states[1]);
    states[0] = select(hn::AndNot(hn::Or(one, two), active), state, states[0]);
  }
  {
    const M known =
        hn::And(hn::And(hn::Eq(start, whole), mask_of(other)), hn::Eq(mask, hn::Zero(kD)));
    const M active = hn::AndNot(known, hn::Gt(start, hn::Zero(kD)));
    const M two = hn::TestBit(pattern, set(2));
    const M one = hn::TestBit(pattern, set(1));
    const V direct = load(contexts_[kSignificantDc]);
    V state = select(two, states[2], select(one, states[1], states[0]));
    state = select(in_first, direct, state);
    cabac.need(3);
    const V bin = hn::And(cabac.get<false>(state, vec_of(active)), vec_of(active));
    mask = hn::Or(mask, select(known, set(1), bin));
    hn::Store(select(hn::And(active, in_first), state, direct), kD, contexts_[kSignificantDc]);
    const M here = hn::AndNot(in_first, active);
    states[2] = select(hn::And(here, two), state, states[2]);
    states[1] = select(hn::And(here, one), state, states[1]);
    states[0] = select(hn::AndNot(hn::Or(one, two), here), state, states[0]);
  }
  for (int k = 0; k < 3; ++k) {
    hn::Store(select(in_first, states[k], load(row(k))), kD, row(k));
    hn::Store(select(in_first, load(row(3 + k)), states[k]), kD, row(3 + k));
  }
  return hn::Or(mask, load(mask_));
}

inline void LaneResidual::signs_and_remaining(LaneReader& cabac, V count, V greater1, V rest,
                                              V lowest) {
  const V zero = hn::Zero(kD), one = set(1);
  V offset = hn::ShiftRight<23>(cabac.value), position = hn::Sub(cabac.next, cabac.waiting);
  LaneBypass bypass;
  bypass.peek(cabac, offset, position);
  V signs = bypass.high;
  bypass.take(count);

  const V persistent = load(persistent_rice_);
  V statistic = load(statistic_);
  V rice = hn::And(hn::ShiftRight<2>(statistic), persistent);
  const V max_rice = select(mask_of(persistent), set(16), set(4));
  M pending = mask_of(persistent);
  M bad = hn::Ne(zero, zero);
  V words = zero;
  int i = 0;
  for (; i < 16; ++i) {
    const M there = hn::Gt(count, set(static_cast<uint32_t>(i)));
    if (!any(there)) break;
    V level = one;
    M needs = there;
    if (i < 8) {
      level = hn::Add(level, hn::And(hn::ShiftRightSame(greater1, i), one));
      needs = hn::TestBit(rest, set(1u << i));
    }
    if (any(needs)) {
      if (any(hn::And(needs, hn::Lt(bypass.left, set(kMaxRemainingBits))))) {
        bypass.end(cabac, offset, position);
        bypass.peek(cabac, offset, position);
      }
      if (i < 8) {
        level =
            hn::Add(level, hn::And(vec_of(hn::And(needs, hn::TestBit(lowest, set(1u << i)))), one));
      }
      const V prefix = hn::Min(leading_zeros(hn::Or(hn::Not(bypass.high), one)), set(15));
      const V extra = hn::Sub(hn::Max(prefix, set(3)), set(3));
      const V suffix = hn::Min(hn::Add(rice, extra), set(16));
      const V bits = hn::Add(hn::Add(prefix, one), suffix);
      const V after = hn::Shl(hn::ShiftLeft<1>(bypass.high), prefix);
      const V tail = hn::Shr(hn::ShiftRight<1>(after), hn::Sub(set(31), suffix));
      const V head = hn::Sub(hn::Add(hn::Shl(one, extra), hn::Min(prefix, set(3))), one);
      const V value = hn::Add(hn::Shl(head, rice), tail);
      const V needed = vec_of(needs);
      bad = hn::Or(bad, hn::And(needs, hn::Gt(bits, set(kMaxRemainingBits))));
      bypass.take(hn::And(hn::Min(bits, set(kMaxRemainingBits)), needed));
      level = hn::Add(level, hn::And(value, needed));
      const M update = hn::And(needs, pending);
      if (any(update)) {
        const V start = hn::ShiftRight<2>(statistic);
        const M up = hn::And(update, hn::Gt(value, hn::Sub(hn::Shl(set(3), start), one)));
        const M down = hn::And(hn::And(update, hn::Lt(hn::Add(value, value), hn::Shl(one, start))),
                               hn::Ne(statistic, zero));
        statistic = hn::Add(statistic, hn::And(vec_of(up), one));
        statistic = hn::Sub(statistic, hn::And(vec_of(down), one));
        pending = hn::AndNot(needs, pending);
      }
      const M grows = hn::And(needs, hn::Gt(level, hn::Shl(set(3), rice)));
      rice = hn::Min(hn::Add(rice, hn::And(vec_of(grows), one)), max_rice);
    }
    const V sign = hn::ShiftRight<31>(signs);
    signs = hn::Add(signs, signs);
    bad = hn::Or(bad, hn::And(there, hn::Gt(level, hn::Add(sign, set(127)))));
    const V sample = hn::And(hn::Add(hn::Xor(level, hn::Sub(zero, sign)), sign), set(255));
    words = hn::Or(words, hn::ShiftLeftSame(sample, 8 * (i % 4)));
    if (i % 4 == 3) {
      hn::Store(words, kD, levels_ + i / 4 * kLanes);
      words = zero;
    }
  }
  if (i % 4 != 0) hn::Store(words, kD, levels_ + i / 4 * kLanes);
  hn::Store(statistic, kD, statistic_);
  hn::Store(vec_of(bad), kD, bad_);

  bypass.end(cabac, offset, position);
  cabac.value = hn::ShiftLeft<23>(offset);
  cabac.waiting = zero;
  cabac.next = position;
}

inline void LaneResidual::levels(LaneReader& cabac, V mask) {
  const V count = hn::PopulationCount(mask), seen = load(seen_);
  const M set1 = mask_of(seen), in_first = hn::Not(mask_of(load(other_)));
  const V one = set(1);
  V states[4];
  const bool any_first = any(in_first);
  const auto row = [&](int s, int k) HWY_ATTR { return contexts_[kGreater1 + 4 * s + k]; };
  for (int k = 0; k < 4; ++k) {
    states[k] = select(set1, load(row(3, k)), load(row(2, k)));
    if (any_first)
      states[k] = select(in_first, select(set1, load(row(1, k)), load(row(0, k))), states[k]);
  }
  V greater1 = hn::Zero(kD);
  for (int i = 0; i < 8; ++i) {
    const M active = hn::Gt(count, set(static_cast<uint32_t>(i)));
    if (!any(active)) break;
    const int k = i < 2 ? i + 1 : 3;
    const M greater = hn::Ne(greater1, hn::Zero(kD));
    V state = select(greater, states[0], states[k]);
    if (i % 3 == 0) cabac.need(3);
    const V bin = hn::And(cabac.get<false>(state, vec_of(active)), vec_of(active));
    states[0] = select(hn::And(greater, active), state, states[0]);
    states[k] = select(hn::AndNot(greater, active), state, states[k]);
    greater1 = hn::Or(greater1, hn::ShiftLeftSame(bin, i));
  }
  for (int k = 0; k < 4; ++k) {
    if (any_first) {
      hn::Store(select(hn::AndNot(set1, in_first), states[k], load(row(0, k))), kD, row(0, k));
      hn::Store(select(hn::And(set1, in_first), states[k], load(row(1, k))), kD, row(1, k));
    }
    hn::Store(select(hn::Or(set1, in_first), load(row(2, k)), states[k]), kD, row(2, k));
    hn::Store(select(hn::AndNot(in_first, set1), states[k], load(row(3, k))), kD, row(3, k));
  }
  const M greater = hn::Ne(greater1, hn::Zero(kD));
  hn::Store(select(hn::Gt(count, hn::Zero(kD)), vec_of(greater), seen), kD, seen_);
  V rest = greater1;
  const V lowest = hn::And(greater1, hn::Sub(hn::Zero(kD), greater1));
  if (any(greater)) {
    const auto row2 = [&](int s) HWY_ATTR { return contexts_[kGreater2 + s]; };
    V state = select(set1, load(row2(3)), load(row2(2)));
    state = select(in_first, select(set1, load(row2(1)), load(row2(0))), state);
    cabac.need(3);
    const V bin = cabac.get<false>(state, vec_of(greater));
    for (int s = 0; s < 4; ++s) {
      M here = greater;
      here = s < 2 ? hn::And(here, in_first) : hn::AndNot(in_first, here);
      here = s % 2 != 0 ? hn::And(here, set1) : hn::AndNot(set1, here);
      hn::Store(select(here, state, load(row2(s))), kD, row2(s));
    }
    rest = select(hn::Eq(bin, one), rest, hn::AndNot(lowest, rest));
  }
  signs_and_remaining(cabac, count, greater1, rest, lowest);
}

inline void LaneResidual::decode_sub_blocks(const uint8_t* bytes) {
  LaneReader cabac{load(value_), load(range_), load(waiting_), load(next_), bytes};
  cabac.refill();
  V mask = significance(cabac);
  // Idle lanes have none.
  mask = hn::And(mask, load(flag_));
  hn::Store(mask, kD, mask_);
  levels(cabac, mask);
  hn::Store(cabac.value, kD, value_);
  hn::Store(cabac.range, kD, range_);
  hn::Store(cabac.waiting, kD, waiting_);
  hn::Store(cabac.next, kD, next_);
}

inline void LaneResidual::coded_flags(const uint8_t* bytes) {
  LaneReader cabac{load(value_), load(range_), load(waiting_), load(next_), bytes};
  cabac.need(1);
  const M active = mask_of(load(coded_)), second = mask_of(load(second_));
  const V row0 = load(contexts_[kCodedSubBlock]), row1 = load(contexts_[kCodedSubBlock + 1]);
  V state = select(second, row1, row0);
  const V bin = cabac.get<false>(state, vec_of(active));
  hn::Store(select(hn::And(active, second), state, row1), kD, contexts_[kCodedSubBlock + 1]);
  hn::Store(select(hn::AndNot(second, active), state, row0), kD, contexts_[kCodedSubBlock]);
  hn::Store(bin, kD, coded_);
  hn::Store(cabac.value, kD, value_);
  hn::Store(cabac.range, kD, range_);
  hn::Store(cabac.waiting, kD, waiting_);
  hn::Store(cabac.next, kD, next_);
}

inline void LaneResidual::write_block(int lane, uint8_t* target, size_t stride) const {
  const hn::Full128<uint8_t> d8;
  alignas(16) uint32_t level[4];
  for (int i = 0; i < 4; ++i) level[i] = levels_[i * kLanes + lane];
  const uint32_t mask = mask_[lane];
  const auto order = hn::Add(hn::Load(d8, kLaneTables.expand_high[mask >> 8]),
                             hn::Load(d8, kLaneTables.expand_low[mask & 255]));
  const auto levels = hn::Load(d8, reinterpret_cast<const uint8_t*>(level));
  const auto samples = hn::Xor(hn::TableLookupBytesOr0(levels, order), hn::Set(d8, uint8_t{128}));
  alignas(16) uint8_t block[16];
  hn::Store(samples, d8, block);
  for (int y = 0; y < 4; ++y) std::memcpy(target + y * stride, block + 4 * y, 4);
}

}  // namespace kvcodec::hevc::decoding::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // include guard
