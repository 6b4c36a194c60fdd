// SPDX-License-Identifier: Apache-2.0
// The arithmetic encoder in every lane at once. FastCabac (fast_cabac.h) is its scalar likeness.
#if defined(KVCODEC_HEVC_LANE_CABAC_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCODEC_HEVC_LANE_CABAC_INL_H
#undef KVCODEC_HEVC_LANE_CABAC_INL_H
#else
#define KVCODEC_HEVC_LANE_CABAC_INL_H
#endif

#include "hevc/lane_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcodec::hevc::HWY_NAMESPACE {

// Registers of the encoder. low is 64 bits: 9 and a carry bit, below `waiting` bits not written.
struct Coder {
  V64 low_even, low_odd;
  V32 range, waiting;
};

// Bins encoded since low was last brought up to date: low is (low << bits) + sum.
struct Pending {
  V32 sum, bits;
};
HWY_INLINE Pending nothing() { return {hn::Zero(d32), hn::Zero(d32)}; }

// A group of at most 4 context bins takes at most 24 bits (its sum stays below 510 << 23), a call
// of put_bypass 32.
constexpr uint32_t kMaxWaiting = 54;
constexpr uint32_t kBinGroup = 4, kGroupBits = 24;

HWY_INLINE Coder load_coder(const LaneScratch& scratch) {
  return {hn::Load(d64, scratch.low[0]), hn::Load(d64, scratch.low[1]), load32(scratch.range),
          load32(scratch.waiting)};
}
HWY_INLINE void store_coder(const Coder& coder, LaneScratch& scratch) {
  hn::Store(coder.low_even, d64, scratch.low[0]);
  hn::Store(coder.low_odd, d64, scratch.low[1]);
  hn::Store(coder.range, d32, scratch.range);
  hn::Store(coder.waiting, d32, scratch.waiting);
}

// Moves whole bytes of the waiting bits of `low` out of it. Returns them, first byte first, and
// the carry into the bytes before.
HWY_INLINE V64 take_bytes(V64& low, V64 waiting, V64& carry) {
  const V64 keep = hn::Add(hn::And(waiting, hn::Set(d64, 7)), hn::Set(d64, 9));
  const V64 bits = hn::AndNot(hn::Set(d64, 7), waiting);
  const V64 value = hn::Shr(low, keep);
  low = hn::AndNot(hn::Shl(value, keep), low);
  carry = hn::Shr(value, bits);
  const V64 top = hn::ShiftLeft<8>(hn::Shl(value, hn::Sub(hn::Set(d64, 56), bits)));
  alignas(16) static constexpr uint8_t kReversed[16] = {7,  6,  5,  4,  3,  2,  1, 0,
                                                        15, 14, 13, 12, 11, 10, 9, 8};
  return hn::BitCast(d64,
                     hn::TableLookupBytes(hn::BitCast(d8, top), hn::LoadDup128(d8, kReversed)));
}

HWY_NOINLINE void flush_memory(Coder& coder, uint8_t** at) {
  V64 carry_even, carry_odd;
  HWY_ALIGN uint64_t words[2][kLanes / 2], carries[2][kLanes / 2];
  HWY_ALIGN uint32_t bytes[kLanes];
  const V64 even = take_bytes(coder.low_even, evens(coder.waiting), carry_even);
  const V64 odd = take_bytes(coder.low_odd, odds(coder.waiting), carry_odd);
  hn::Store(even, d64, words[0]);
  hn::Store(odd, d64, words[1]);
  hn::Store(hn::ShiftRight<3>(coder.waiting), d32, bytes);
  coder.waiting = hn::And(coder.waiting, set32(7));
  const V64 carry = hn::Or(carry_even, carry_odd);
  if (any(hn::Ne(hn::BitCast(d32, carry), hn::Zero(d32)))) {
    hn::Store(carry_even, d64, carries[0]);
    hn::Store(carry_odd, d64, carries[1]);
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (carries[lane % 2][lane / 2] != 0) carry_before(at[lane]);
    }
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    store64(at[lane], words[lane % 2][lane / 2]);
    at[lane] += bytes[lane];
  }
}

// By way of a copy, so that the caller's registers stay registers.
HWY_INLINE void flush(Coder& coder, uint8_t** at) {
  Coder copy = coder;
  flush_memory(copy, at);
  coder = copy;
}

// Before a group of bins.
HWY_INLINE void reserve_group(Coder& coder, uint8_t** at) {
  if (HWY_UNLIKELY(any(greater(coder.waiting, set32(kMaxWaiting - kGroupBits))))) flush(coder, at);
}

// After a group of bins.
HWY_INLINE void fold(Coder& coder, Pending& pending) {
  coder.low_even = hn::Add(hn::Shl(coder.low_even, evens(pending.bits)), evens(pending.sum));
  coder.low_odd = hn::Add(hn::Shl(coder.low_odd, odds(pending.bits)), odds(pending.sum));
  coder.waiting = hn::Add(coder.waiting, pending.bits);
  pending = nothing();
}

HWY_INLINE V32 next_state(V32 state, V32 index, Mask32 lps) {
  const V32 one = set32(1);
  const V32 after_lps = hn::Xor(state_after_lps(index), hn::And(state, one));
  const V32 after_mps = hn::Add(state, hn::IfThenElseZero(greater(set32(124), state), set32(2)));
  return hn::IfThenElse(lps, after_lps, after_mps);
}

// One context bin, bit 0 of `bits`, in every lane. Returns the next state.
HWY_INLINE V32 put_bin(Coder& coder, Pending& pending, V32 state, V32 bits) {
  const Mask32 lps = hn::TestBit(hn::Xor(state, bits), set32(1));
  const V32 index = hn::ShiftRight<1>(state);
  const V32 row = look_up64(kLaneStates.lps_row, index);
  const V32 column = hn::And(hn::ShiftRight<3>(coder.range), set32(24));
  const V32 lps_range = hn::And(hn::Shr(row, column), set32(255));
  const V32 mps_range = hn::Sub(coder.range, lps_range);
  const V32 range = hn::IfThenElse(lps, lps_range, mps_range);
  const V32 shift = renormalising_shift(range);
  coder.range = hn::Shl(range, shift);
  pending.sum = hn::Shl(hn::Add(pending.sum, hn::IfThenElseZero(lps, mps_range)), shift);
  pending.bits = hn::Add(pending.bits, shift);
  return next_state(state, index, lps);
}

// In the lanes of `active` alone; the state of the others is returned as it was.
HWY_INLINE V32 put_bin(Coder& coder, Pending& pending, V32 state, V32 bits, Mask32 active) {
  const Mask32 lps = hn::And(active, hn::TestBit(hn::Xor(state, bits), set32(1)));
  const V32 index = hn::ShiftRight<1>(state);
  const V32 row = look_up64(kLaneStates.lps_row, index);
  const V32 column = hn::And(hn::ShiftRight<3>(coder.range), set32(24));
  const V32 lps_range = hn::And(hn::Shr(row, column), set32(255));
  const V32 mps_range = hn::Sub(coder.range, lps_range);
  const V32 range = hn::IfThenElse(lps, lps_range, hn::IfThenElse(active, mps_range, coder.range));
  const V32 shift = renormalising_shift(range);
  coder.range = hn::Shl(range, shift);
  pending.sum = hn::Shl(hn::Add(pending.sum, hn::IfThenElseZero(lps, mps_range)), shift);
  pending.bits = hn::Add(pending.bits, shift);
  return hn::IfThenElse(active, next_state(state, index, lps), state);
}

// end_of_slice_segment_flag in the lanes of `active`, set in those of `end`.
HWY_INLINE void put_terminate(Coder& coder, uint8_t** at, Mask32 end, Mask32 active) {
  reserve_group(coder, at);
  Pending pending = nothing();
  const V32 two = hn::IfThenElseZero(active, set32(2));
  const V32 mps_range = hn::Sub(coder.range, two);
  const V32 range = hn::IfThenElse(end, two, mps_range);
  const V32 shift = renormalising_shift(range);
  coder.range = hn::Shl(range, shift);
  pending.sum = hn::Shl(hn::IfThenElseZero(end, mps_range), shift);
  pending.bits = shift;
  fold(coder, pending);
}

// The `count` (at most 32) low bits of value, which has no others.
HWY_INLINE void put_bypass(Coder& coder, uint8_t** at, V32 value, V32 count) {
  if (HWY_UNLIKELY(any(greater(hn::Add(coder.waiting, count), set32(kMaxWaiting))))) {
    flush(coder, at);
  }
  const V64 even = hn::MulEven(coder.range, value);
  const V64 odd = hn::MulEven(hn::BitCast(d32, odds(coder.range)), hn::BitCast(d32, odds(value)));
  coder.low_even = hn::Add(hn::Shl(coder.low_even, evens(count)), even);
  coder.low_odd = hn::Add(hn::Shl(coder.low_odd, odds(count)), odd);
  coder.waiting = hn::Add(coder.waiting, count);
}

}  // namespace kvcodec::hevc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
