// SPDX-License-Identifier: Apache-2.0
// Vector operations of the lane encoder that Highway 1.0.3 lacks, once for every target.
#if defined(KVCODEC_HEVC_LANE_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCODEC_HEVC_LANE_SIMD_INL_H
#undef KVCODEC_HEVC_LANE_SIMD_INL_H
#else
#define KVCODEC_HEVC_LANE_SIMD_INL_H
#endif

#include <hwy/highway.h>

#include "hevc/lane_scratch.h"

HWY_BEFORE_NAMESPACE();
namespace kvcodec::hevc::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D32 = hn::ScalableTag<uint32_t>;  // one picture a lane
using D64 = hn::Repartition<uint64_t, D32>;
using D8 = hn::Repartition<uint8_t, D32>;
using V32 = hn::Vec<D32>;
using V64 = hn::Vec<D64>;
using Mask32 = hn::Mask<D32>;
using D8x16 = hn::CappedTag<uint8_t, 16>;  // a 4x4 sub-block
using V8x16 = hn::Vec<D8x16>;
constexpr D32 d32;
constexpr D64 d64;
constexpr D8 d8;
constexpr D8x16 d8x16;
constexpr size_t kLanes = HWY_LANES(uint32_t);

HWY_INLINE V32 set32(uint32_t value) { return hn::Set(d32, value); }
HWY_INLINE V32 load32(const uint32_t* from) { return hn::Load(d32, from); }
HWY_INLINE bool any(Mask32 mask) { return !hn::AllFalse(d32, mask); }
// Of numbers below 2^31; signed comparisons are the cheap ones.
HWY_INLINE Mask32 greater(V32 a, V32 b) {
  const hn::RebindToSigned<D32> di;
  return hn::RebindMask(d32, hn::Gt(hn::BitCast(di, a), hn::BitCast(di, b)));
}
HWY_INLINE Mask32 has_bit(V32 v, uint32_t bit) { return hn::TestBit(v, set32(bit)); }
HWY_INLINE V32 choose(Mask32 mask, V32 yes, V32 no) { return hn::IfThenElse(mask, yes, no); }
// The even and the odd lanes, each in 64 bits.
HWY_INLINE V64 evens(V32 v) { return hn::And(hn::BitCast(d64, v), hn::Set(d64, 0xffffffff)); }
HWY_INLINE V64 odds(V32 v) { return hn::ShiftRight<32>(hn::BitCast(d64, v)); }

// How far a range below 512 must be shifted to reach 256.
HWY_INLINE V32 renormalising_shift(V32 range) {
  // The exponent of the number as a float.
  const hn::RebindToSigned<D32> di;
  const auto bits =
      hn::BitCast(d32, hn::ConvertTo(hn::RebindToFloat<D32>(), hn::BitCast(di, range)));
  return hn::Sub(set32(127 + 8), hn::ShiftRight<23>(bits));
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL

// table[index], 64 entries.
HWY_INLINE V32 look_up64(const uint32_t* table, V32 index) {
  const __m512i low =
      _mm512_permutex2var_epi32(_mm512_load_si512(table), index.raw, _mm512_load_si512(table + 16));
  const __m512i high = _mm512_permutex2var_epi32(_mm512_load_si512(table + 32), index.raw,
                                                 _mm512_load_si512(table + 48));
  return V32{
      _mm512_mask_mov_epi32(low, _mm512_test_epi32_mask(index.raw, _mm512_set1_epi32(32)), high)};
}

#else

HWY_INLINE V32 look_up64(const uint32_t* table, V32 index) {
  return hn::GatherIndex(d32, table, hn::BitCast(hn::RebindToSigned<D32>(), index));
}

#endif

#if HWY_TARGET == HWY_AVX3_DL

HWY_INLINE V32 state_after_lps(V32 index) {
  return V32{_mm512_maskz_permutexvar_epi8(0x1111111111111111, index.raw,
                                           _mm512_load_si512(kLaneStates.after_lps_bytes))};
}

// Writes the bytes of the set bits of mask, then zeros, 16 in all.
HWY_INLINE void compress_bytes(V8x16 bytes, uint32_t mask, uint8_t* to) {
  _mm_store_si128(reinterpret_cast<__m128i*>(to),
                  _mm_maskz_compress_epi8(static_cast<__mmask16>(mask), bytes.raw));
}

#else

HWY_INLINE V32 state_after_lps(V32 index) { return look_up64(kLaneStates.after_lps, index); }

HWY_INLINE void compress_bytes(V8x16 bytes, uint32_t mask, uint8_t* to) {
  alignas(16)
      const uint64_t indices[2] = {kCompress.at[mask & 255], kCompress.at[mask >> 8] + 8 * kOnes};
  const auto both =
      hn::TableLookupBytesOr0(bytes, hn::Load(d8x16, reinterpret_cast<const uint8_t*>(indices)));
  alignas(16) uint64_t halves[2];
  hn::Store(both, d8x16, reinterpret_cast<uint8_t*>(halves));
  store64(to, halves[0]);
  store64(to + 8, 0);
  store64(to + std::popcount(mask & 255), halves[1]);
}

#endif

}  // namespace kvcodec::hevc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
