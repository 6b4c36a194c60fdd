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
#include "hevc/remaining_code.h"

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

HWY_INLINE V LaneResidual::significance(LaneReader& cabac) {
  const V start = load(start_), pattern = load(pattern_), other = load(other_);
  const V whole = set(16), byte = keep(24);
  V mask = hn::Zero(kD);
  if (hn::AllTrue(kD, hn::Eq(pattern, set(0xaaaaaaaa))) && hn::AllTrue(kD, hn::Eq(start, whole)) &&
      hn::AllTrue(kD, mask_of(other))) {
    // All in the middle of dense blocks: one context.
    const V states = load(significant_[1]), all = set(~0u);
    V state = hn::ShiftRight<16>(states);
    for (uint32_t bin = 0; bin < 15; ++bin) {
      cabac.need(bin);
      mask = hn::Or(hn::Add(mask, mask), cabac.get<true>(state, all));
    }
    const M known = hn::Eq(mask, hn::Zero(kD));
    cabac.need(15);
    V last = state;
    const V bin = cabac.get<false>(last, vec_of(hn::Not(known)));
    state = select(known, state, last);
    hn::Store(hn::Or(hn::And(states, set(0xffff)), hn::ShiftLeft<16>(state)), kD, significant_[1]);
    return hn::Or(hn::Add(mask, mask), select(known, set(1), bin));
  }
  const M is_other = mask_of(other);
  V states = select(is_other, load(significant_[1]), load(significant_[0]));
#pragma GCC unroll 16
  for (int i = 15; i > 0; --i) {
    cabac.need(static_cast<uint32_t>(15 - i));
    const M active = hn::Gt(start, set(static_cast<uint32_t>(i)));
    const V place = i > 1 ? hn::ShiftRightSame(pattern, 2 * i - 3) : hn::Add(pattern, pattern);
    const V bin = cabac.get_byte(states, hn::And(place, byte), active);
    mask = hn::Or(hn::Add(mask, mask), hn::And(bin, cabac.one));
  }
  cabac.need(15);
  // The only coefficient of a coded sub-block is known when it comes last.
  const M known = hn::And(hn::And(hn::Eq(start, whole), is_other), hn::Eq(mask, hn::Zero(kD)));
  const M active = hn::AndNot(known, hn::Gt(start, hn::Zero(kD)));
  const V bin = cabac.get_byte(states, hn::And(hn::ShiftLeft<3>(pattern), byte), active);
  mask = hn::Or(hn::Add(mask, mask),
                hn::Or(hn::And(bin, cabac.one), hn::And(vec_of(known), cabac.one)));
  mask = hn::And(mask, hn::Sub(hn::Shl(cabac.one, start), cabac.one));  // those that were active
  hn::Store(select(is_other, load(significant_[0]), states), kD, significant_[0]);
  hn::Store(select(is_other, states, load(significant_[1])), kD, significant_[1]);
  return hn::And(hn::Or(mask, load(mask_)), load(flag_));
}

// Words of kLanes levels each (byte b of word w: level 4 * w + b) to rows of four words a lane, in
// blocks of 128 bits as interleaving leaves them: see row_of().
HWY_INLINE void store_rows(V w0, V w1, V w2, V w3, uint32_t* rows) {
  const V a = hn::InterleaveLower(kD, w0, w1), b = hn::InterleaveUpper(kD, w0, w1);
  const V c = hn::InterleaveLower(kD, w2, w3), d = hn::InterleaveUpper(kD, w2, w3);
  const auto wide = [](V v) HWY_ATTR { return hn::BitCast(kD64, v); };
  const auto put = [&](V64 v, int row)
                       HWY_ATTR { hn::Store(hn::BitCast(kD, v), kD, rows + row * kLanes); };
  put(hn::InterleaveLower(kD64, wide(a), wide(c)), 0);
  put(hn::InterleaveUpper(kD64, wide(a), wide(c)), 1);
  put(hn::InterleaveLower(kD64, wide(b), wide(d)), 2);
  put(hn::InterleaveUpper(kD64, wide(b), wide(d)), 3);
}
constexpr int row_of(int lane) { return lane % 4 * kLanes + lane / 4 * 4; }

HWY_INLINE M LaneResidual::signs_and_remaining(LaneReader& cabac, V count, V greater1, V rest,
                                               V lowest) {
  const V zero = hn::Zero(kD), one = cabac.one;
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
  V words[4] = {zero, zero, zero, zero};
  for (int i = 0; i < 16; ++i) {
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
    words[i / 4] = hn::Or(words[i / 4], hn::ShiftLeftSame(sample, 8 * (i % 4)));
  }
  store_rows(words[0], words[1], words[2], words[3], levels_);
  hn::Store(statistic, kD, statistic_);

  bypass.end(cabac, offset, position);
  cabac.value = hn::ShiftLeft<23>(offset);
  cabac.waiting = zero;
  cabac.next = position;
  return bad;
}

HWY_INLINE M LaneResidual::levels(LaneReader& cabac, V mask) {
  const V count = hn::PopulationCount(mask), seen = load(seen_);
  const M after = mask_of(seen), is_other = mask_of(load(other_));
  const V set = hn::Add(hn::And(seen, cabac.one), hn::And(load(other_), cabac.two));
  V states = select(is_other, select(after, load(greater1_[3]), load(greater1_[2])),
                    select(after, load(greater1_[1]), load(greater1_[0])));
  V greater1 = hn::Zero(kD);
  cabac.refill();
  for (int i = 0; i < 8; ++i) {
    const M active = hn::Gt(count, hn::Set(kD, static_cast<uint32_t>(i)));
    if (!any(active)) break;
    cabac.need(static_cast<uint32_t>(i));
    const V context = hn::Set(kD, 8 * static_cast<uint32_t>(i < 2 ? i + 1 : 3));
    const V byte = hn::IfThenElseZero(hn::Eq(greater1, hn::Zero(kD)), context);
    const V bin = cabac.get_byte(states, byte, active);
    greater1 =
        hn::Or(greater1, hn::ShiftLeftSame(hn::IfThenElseZero(active, hn::And(bin, cabac.one)), i));
  }
  for (int s = 0; s < 4; ++s) {
    const M here = hn::Eq(set, hn::Set(kD, static_cast<uint32_t>(s)));
    hn::Store(select(here, states, load(greater1_[s])), kD, greater1_[s]);
  }
  const M greater = hn::Ne(greater1, hn::Zero(kD));
  hn::Store(select(hn::Gt(count, hn::Zero(kD)), vec_of(greater), seen), kD, seen_);
  V rest = greater1;
  const V lowest = hn::And(greater1, hn::Sub(hn::Zero(kD), greater1));
  if (any(greater)) {
    cabac.need_one();
    V sets = load(greater2_);
    const V bin = cabac.get_byte(sets, hn::ShiftLeft<3>(set), greater);
    hn::Store(sets, kD, greater2_);
    rest = select(hn::TestBit(bin, cabac.one), rest, hn::AndNot(lowest, rest));
  }
  return signs_and_remaining(cabac, count, greater1, rest, lowest);
}

inline uint32_t LaneResidual::decode_sub_blocks(const uint8_t* bytes) {
  LaneReader cabac = reader(bytes);
  const V mask = significance(cabac);
  hn::Store(mask, kD, mask_);
  const M bad = levels(cabac, mask);
  put_back(cabac);
  return bits_of(bad);
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
    const V place = lookup64(kLaneTables.neighbours, sub_block);
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

inline void LaneResidual::write_block(int lane, uint8_t* target, size_t stride) const {
  const hn::Full128<uint8_t> d8;
  const uint32_t mask = mask_[lane];
  const auto order = hn::Add(hn::Load(d8, kLaneTables.expand_high[mask >> 8]),
                             hn::Load(d8, kLaneTables.expand_low[mask & 255]));
  const auto levels = hn::Load(d8, reinterpret_cast<const uint8_t*>(levels_ + row_of(lane)));
  const auto samples = hn::Xor(hn::TableLookupBytesOr0(levels, order), hn::Set(d8, uint8_t{128}));
  alignas(16) uint8_t block[16];
  hn::Store(samples, d8, block);
  for (int y = 0; y < 4; ++y) std::memcpy(target + y * stride, block + 4 * y, 4);
}

}  // namespace kvcodec::hevc::decoding::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // include guard
