// SPDX-License-Identifier: Apache-2.0
// Vector operations that Highway 1.0.3 lacks; no include guard but Highway's, once a target.
#if defined(KVCODEC_LANE_OPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCODEC_LANE_OPS_INL_H
#undef KVCODEC_LANE_OPS_INL_H
#else
#define KVCODEC_LANE_OPS_INL_H
#endif

#include <hwy/highway.h>

#include "hevc/lane_tables.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#undef KVCODEC_LANES_AVX512
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define KVCODEC_LANES_AVX512 1
#else
#define KVCODEC_LANES_AVX512 0
#endif

HWY_BEFORE_NAMESPACE();
namespace kvcodec::hevc::decoding::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<uint32_t>;
using D64 = hn::RepartitionToWide<D>;
using V = hn::Vec<D>;
using V64 = hn::Vec<D64>;
using M = hn::Mask<D>;
inline constexpr D kD;
inline constexpr D64 kD64;
inline constexpr int kLanes = HWY_LANES(uint32_t);

HWY_INLINE V set(uint32_t value) { return hn::Set(kD, value); }
// A constant that stays in its register: compilers would rather make it anew each time, on the port
// that table look-ups need.
HWY_INLINE V keep(uint32_t value) {
  V v = set(value);
#if KVCODEC_LANES_AVX512
  asm("" : "+v"(v.raw));
#endif
  return v;
}
HWY_INLINE V load(const uint32_t* from) { return hn::Load(kD, from); }
HWY_INLINE bool any(M mask) { return !hn::AllFalse(kD, mask); }
HWY_INLINE V select(M mask, V yes, V no) { return hn::IfThenElse(mask, yes, no); }

// Leading zeros of values that are not 0.
HWY_INLINE V leading_zeros(V v) {
#if KVCODEC_LANES_AVX512
  // Highway's AVX3 does not enable AVX512CD, which every such processor has (and lanes_decoders()
  // looks for), so the intrinsic is out of reach.
  V zeros;
  asm("vplzcntd %1, %0" : "=v"(zeros.raw) : "v"(v.raw));
  return zeros;
#else
  // The exponent of half of it as a float. Where the upper 24 bits are all ones, the bit below them
  // goes, so that no rounding reaches the next power of two.
  const hn::RebindToSigned<D> di;
  const hn::RebindToFloat<D> df;
  const V half = hn::ShiftRight<1>(hn::AndNot(hn::ShiftRight<24>(v), v));
  const V exponent = hn::ShiftRight<23>(hn::BitCast(kD, hn::ConvertTo(df, hn::BitCast(di, half))));
  return hn::Min(hn::Sub(set(157), exponent), set(31));
#endif
}

// Byte `eights / 8` of each table word, moved to bits 23 to 30.
HWY_INLINE V lps_of(V word, V eights, V bits) {
#if KVCODEC_LANES_AVX512
  const V moved{_mm512_rorv_epi32(word.raw, eights.raw)};  // the table is rotated by 9
  return hn::And(moved, bits);
#else
  return hn::And(hn::ShiftLeft<23>(hn::Shr(word, eights)), bits);
#endif
}

// table[index], of 64 entries and of 16.
HWY_INLINE V lookup64(const uint32_t* table, V index) {
#if KVCODEC_LANES_AVX512
  const V low{_mm512_permutex2var_epi32(load(table).raw, index.raw, load(table + 16).raw)};
  const V high{_mm512_permutex2var_epi32(load(table + 32).raw, index.raw, load(table + 48).raw)};
  return select(hn::TestBit(index, set(32)), high, low);
#else
  const hn::RebindToSigned<D> di;
  return hn::GatherIndex(kD, table, hn::BitCast(di, index));
#endif
}
HWY_INLINE V lookup16(const uint32_t* table, V index) {
#if KVCODEC_LANES_AVX512
  return V{_mm512_permutexvar_epi32(index.raw, load(table).raw)};
#else
  const hn::RebindToSigned<D> di;
  return hn::GatherIndex(kD, table, hn::BitCast(di, index));
#endif
}

// LPS ranges by pStateIdx, for lps_of().
HWY_INLINE V lps_words(V index) {
#if KVCODEC_LANES_AVX512
  return lookup64(kLaneTables.lps_rotated, index);
#else
  return lookup64(kLaneTables.lps, index);
#endif
}

// State (pStateIdx << 1 | valMps) after the less probable bin; index is pStateIdx.
HWY_INLINE V next_lps(V state, V index) {
#if HWY_TARGET == HWY_AVX3_DL
  const V next{_mm512_maskz_permutexvar_epi8(
      0x1111111111111111, index.raw,
      _mm512_load_si512(reinterpret_cast<const void*>(kLaneTables.next_bytes)))};
  return hn::Xor(next, hn::And(state, set(1)));
#elif HWY_TARGET == HWY_AVX3
  const uint32_t* table = kLaneTables.next_pairs;
  const V pair{_mm512_permutex2var_epi16(load(table).raw, index.raw, load(table + 16).raw)};
  return hn::And(hn::Shr(pair, hn::ShiftLeft<3>(hn::And(state, set(1)))), set(255));
#else
  (void)index;
  const hn::RebindToSigned<D> di;
  return hn::GatherIndex(kD, kLaneTables.next, hn::BitCast(di, state));
#endif
}

// 32 bits of `bytes` from byte `at` on, the first byte highest.
HWY_INLINE V gather_bits(const uint8_t* bytes, V at) {
  const hn::RebindToSigned<D> di;
  const hn::Repartition<uint8_t, D> d8;
  const auto raw =
      hn::GatherOffset(kD, reinterpret_cast<const uint32_t*>(bytes), hn::BitCast(di, at));
  alignas(16) static constexpr uint8_t kSwap[16] = {3,  2,  1, 0, 7,  6,  5,  4,
                                                    11, 10, 9, 8, 15, 14, 13, 12};
  return hn::BitCast(kD, hn::TableLookupBytes(hn::BitCast(d8, raw), hn::LoadDup128(d8, kSwap)));
}

// Shifts both left as one number of 64 bits, by less than 32.
HWY_INLINE void shift_left(V& high, V& low, V bits) {
#if HWY_TARGET == HWY_AVX3_DL
  high = V{_mm512_shldv_epi32(high.raw, low.raw, bits.raw)};
#else
  high = hn::Or(hn::Shl(high, bits), hn::Shr(hn::ShiftRight<1>(low), hn::Sub(set(31), bits)));
#endif
  low = hn::Shl(low, bits);
}

// Lanes 0 to kLanes / 2 - 1, and the others, as 64 bits each; and back, of the lower 32 bits.
HWY_INLINE V64 widen_low(V v) { return hn::PromoteTo(kD64, hn::LowerHalf(hn::Half<D>(), v)); }
HWY_INLINE V64 widen_high(V v) { return hn::PromoteTo(kD64, hn::UpperHalf(hn::Half<D>(), v)); }
HWY_INLINE V narrow(V64 low, V64 high) {
  return hn::ConcatEven(kD, hn::BitCast(kD, high), hn::BitCast(kD, low));
}

// Of integers below 2^52.
HWY_INLINE hn::Vec<hn::RebindToFloat<D64>> to_double(V64 v) {
  const hn::RebindToFloat<D64> df;
  constexpr double kTwo52 = 4503599627370496.0;
  const V64 bits = hn::Or(v, hn::Set(kD64, uint64_t{0x4330000000000000}));
  return hn::Sub(hn::BitCast(df, bits), hn::Set(df, kTwo52));
}
HWY_INLINE V64 floor_to_integer(hn::Vec<hn::RebindToFloat<D64>> v) {
  const hn::RebindToFloat<D64> df;
  constexpr double kTwo52 = 4503599627370496.0;
  const auto sum = hn::Add(hn::Floor(v), hn::Set(df, kTwo52));
  return hn::And(hn::BitCast(kD64, sum), hn::Set(kD64, (uint64_t{1} << 52) - 1));
}

}  // namespace kvcodec::hevc::decoding::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#endif  // include guard
