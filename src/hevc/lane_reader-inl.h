// SPDX-License-Identifier: Apache-2.0
// Once a target, as lane_ops-inl.h.
#if defined(KVCODEC_LANE_READER_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCODEC_LANE_READER_INL_H
#undef KVCODEC_LANE_READER_INL_H
#else
#define KVCODEC_LANE_READER_INL_H
#endif

#include <cstdint>

#include "hevc/lane_ops-inl.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
HWY_BEFORE_NAMESPACE();
namespace kvcodec::hevc::decoding::HWY_NAMESPACE {

// 9.3.4.3 of all lanes. As in CabacReader, ivlOffset is the upper 9 bits of value, and range is
// scaled to it. Copy it to where the loops are: in memory that others might see, every bin would go
// through memory.
struct LaneReader {
  V value, range;
  V waiting;  // bits below the offset
  V next;     // position of the first bit not in value and ahead
  V ahead;    // with a long window, the bits after value
  const uint8_t* bytes;

  // Bits below the offset after a refill. Where shifts of two words are one instruction, there is a
  // second word of them.
#if HWY_TARGET == HWY_AVX3_DL
  static constexpr bool kLong = true;
#else
  static constexpr bool kLong = false;
#endif
  static constexpr uint32_t kWindow = kLong ? 23 + 32 : 23;
  static constexpr uint32_t kMaxShift = 6;  // of a context bin: no LPS range is below 6

  V one = keep(1), two = keep(2), quarters = keep(24), highest = keep(124);
  V lps_bits = keep(255u << 23), index_bits = keep(126);

  HWY_INLINE void refill() {
    if (kLong) {
      const V position = hn::Sub(next, waiting), at = hn::ShiftRight<3>(position);
      V more = gather_bits(bytes, at), rest = gather_bits(bytes, hn::Add(at, set(4)));
      shift_left(more, rest, hn::And(position, set(7)));
      ahead = hn::Or(hn::ShiftLeft<23>(more), hn::ShiftRight<9>(rest));
      value = hn::Or(hn::And(value, set(~0u << 23)), hn::ShiftRight<9>(more));
      next = hn::Add(position, set(kWindow));
    } else {
      const V more = hn::Shl(gather_bits(bytes, hn::ShiftRight<3>(next)), hn::And(next, set(7)));
      value = hn::Or(value, hn::Shr(more, hn::Add(waiting, set(9))));
      next = hn::Add(next, hn::Sub(set(kWindow), waiting));
    }
    waiting = set(kWindow);
  }
  // Before context bins: one, and each of several that are counted from 0.
  HWY_INLINE void need_one() {
    if (any(hn::Lt(waiting, set(kMaxShift)))) refill();
  }
  HWY_INLINE void need(uint32_t bin) {
    constexpr uint32_t kEvery = kLong ? 8 : 3;
    if (bin % kEvery == 0 && any(hn::Lt(waiting, set(kMaxShift * kEvery)))) refill();
  }

  // One bin of every lane where `active` is all ones, else nothing happens; `state` becomes the
  // context's next state. The bin is 0 or 1, in inactive lanes anything, as is their state.
  template <bool all>
  HWY_INLINE V get(V& state, V active) {
    const V index = hn::ShiftRight<1>(state);
    const V eights = hn::And(hn::ShiftRight<26>(range), quarters);
    V lps = lps_of(lps_words(index), eights, lps_bits);
    if (!all) lps = hn::And(lps, active);
    const V mps = hn::Sub(range, lps);
    const M more_probable = hn::Lt(value, mps);
    const V less = next_lps(state, index);
    const V more = hn::Min(hn::Add(state, two), hn::Or(state, highest));  // pStateIdx stays at 62
    value = hn::Min(value, hn::Sub(value, mps));  // wraps where it must not be taken
    range = select(more_probable, mps, lps);
    const V shift = leading_zeros(range);
    range = hn::Shl(range, shift);
    if (kLong) {
      shift_left(value, ahead, shift);
    } else {
      value = hn::Shl(value, shift);
    }
    waiting = hn::Sub(waiting, shift);
    const V bin = hn::And(select(more_probable, state, hn::Not(state)), one);
    state = select(more_probable, more, less);
    return bin;
  }

  // The same of contexts of which four are in one word: that of `byte` (times 8); those of inactive
  // lanes stay. The bin is bit 0 of what is returned, the other bits are anything.
  HWY_INLINE V get_byte(V& states, V byte, M active) {
#if HWY_TARGET == HWY_AVX3_DL
    // As get(), with the index taken from the word as it is and the byte changed in place.
    const V moved = hn::Shr(states, byte), index = hn::ShiftRight<1>(moved);
    const V eights = hn::And(hn::ShiftRight<26>(range), quarters);
    const V lps{_mm512_maskz_and_epi32(
        active.raw, _mm512_rorv_epi32(lps_words(index).raw, eights.raw), lps_bits.raw)};
    const V mps = hn::Sub(range, lps);
    const __mmask16 less = _mm512_cmple_epu32_mask(mps.raw, value.raw);
    const auto table = [](const uint8_t* bytes) HWY_ATTR {
      return _mm512_load_si512(reinterpret_cast<const void*>(bytes));
    };
    constexpr __mmask64 kLowest = 0x1111111111111111;
    const V more{_mm512_maskz_permutexvar_epi8(kLowest, index.raw, table(kLaneTables.more_bytes))};
    const V fewer{_mm512_maskz_permutexvar_epi8(kLowest, index.raw, table(kLaneTables.next_bytes))};
    const V next_state{_mm512_mask_mov_epi32(more.raw, less, fewer.raw)};
    value = hn::Min(value, hn::Sub(value, mps));
    range = V{_mm512_mask_mov_epi32(mps.raw, less, lps.raw)};
    const V shift = leading_zeros(range);
    range = hn::Shl(range, shift);
    shift_left(value, ahead, shift);
    waiting = hn::Sub(waiting, shift);
    // Both tables hold states of valMps 0: bit 0 of the change is whether valMps changes.
    const V change = hn::Shl(hn::Xor(next_state, hn::And(moved, index_bits)), byte);
    states = V{_mm512_mask_xor_epi32(states.raw, active.raw, states.raw, change.raw)};
    return V{_mm512_mask_xor_epi32(moved.raw, less, moved.raw, one.raw)};
#else
    const V old = hn::And(hn::Shr(states, byte), set(127)), on = hn::VecFromMask(kD, active);
    V state = old;
    const V bin = get<false>(state, on);
    states = hn::Xor(states, hn::Shl(hn::And(hn::Xor(state, old), on), byte));
    return bin;
#endif
  }
};

// The bypass bins of a sub-block: strings of kString bins, left aligned in high and low, each a
// division (see CabacReader::peek_bypass()).
struct LaneBypass {
  static constexpr int kString = 42;
  V high, low;
  V left;  // bins left
  V64 offset0, offset1, string0, string1;

  // An implicit one would not be compiled for the target.
  HWY_INLINE LaneBypass() {}

  HWY_INLINE void peek(const LaneReader& cabac, V offset, V position) {
    const V at = hn::ShiftRight<3>(position), shift = hn::And(position, set(7));
    const V first = gather_bits(cabac.bytes, at),
            second = gather_bits(cabac.bytes, hn::Add(at, set(4)));
    const V range = hn::ShiftRight<23>(cabac.range);
    divide(widen_low(offset), widen_low(first), widen_low(second), widen_low(shift),
           widen_low(range), offset0, string0);
    divide(widen_high(offset), widen_high(first), widen_high(second), widen_high(shift),
           widen_high(range), offset1, string1);
    high = narrow(hn::ShiftRight<kString - 32>(string0), hn::ShiftRight<kString - 32>(string1));
    low = hn::ShiftLeft<64 - kString>(narrow(string0, string1));
    left = set(kString);
  }

  static HWY_INLINE void divide(V64 offset, V64 first, V64 second, V64 shift, V64 range,
                                V64& longer, V64& string) {
    const V64 bits = hn::Shl(hn::Or(hn::ShiftLeft<32>(first), second), shift);
    longer = hn::Or(hn::ShiftLeft<kString>(offset), hn::ShiftRight<64 - kString>(bits));
    string = floor_to_integer(hn::Div(to_double(longer), to_double(range)));
  }

  HWY_INLINE void take(V bits) {
    high = hn::Or(hn::Shl(high, bits), hn::Shr(hn::ShiftRight<1>(low), hn::Sub(set(31), bits)));
    low = hn::Shl(low, bits);
    left = hn::Sub(left, bits);
  }

  // Offset and position after what was taken.
  HWY_INLINE void end(const LaneReader& cabac, V& offset, V& position) const {
    const V64 left0 = widen_low(left), left1 = widen_high(left);
    const V longer = narrow(hn::Shr(offset0, left0), hn::Shr(offset1, left1));
    const V taken = narrow(hn::Shr(string0, left0), hn::Shr(string1, left1));
    offset = hn::Sub(longer, hn::Mul(taken, hn::ShiftRight<23>(cabac.range)));
    position = hn::Add(position, hn::Sub(set(kString), left));
  }
};

}  // namespace kvcodec::hevc::decoding::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // include guard
