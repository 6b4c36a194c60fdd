// SPDX-License-Identifier: Apache-2.0
// Once a target, as lane_ops-inl.h.
#if defined(KVCODEC_LANE_RESIDUAL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCODEC_LANE_RESIDUAL_INL_H
#undef KVCODEC_LANE_RESIDUAL_INL_H
#else
#define KVCODEC_LANE_RESIDUAL_INL_H
#endif

#include <cstdint>
#include <cstring>

#include "hevc/lane_state-inl.h"
#include "hevc/lane_tables.h"
#include "hevc/remaining_code.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
namespace kvcodec::hevc::decoding::HWY_NAMESPACE {

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
