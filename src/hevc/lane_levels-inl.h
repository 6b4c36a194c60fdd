// SPDX-License-Identifier: Apache-2.0
// Levels of one sub-block in all lanes, and the coding of those that the flags do not tell.
#if defined(KVCODEC_HEVC_LANE_LEVELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCODEC_HEVC_LANE_LEVELS_INL_H
#undef KVCODEC_HEVC_LANE_LEVELS_INL_H
#else
#define KVCODEC_HEVC_LANE_LEVELS_INL_H
#endif

#include "hevc/lane_cabac-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcodec::hevc::HWY_NAMESPACE {

// Byte t of part q is coefficient 4 * t + q, in coding order without zeros.
constexpr uint32_t kParts = 4;

// Where the 16 bytes of a lane lie among those of a sub-block, so that transposing 4x4 words in
// every 128 bits brings lane i to place i.
constexpr size_t level_slot(size_t lane) { return kLanes / 4 * (lane % 4) + lane / 4; }

class Levels {
 public:
  HWY_INLINE Levels(const LaneScratch& scratch, int sub_block) {
    alignas(16) static constexpr uint8_t kByParts[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                         2, 6, 10, 14, 3, 7, 11, 15};
    const auto by_parts = hn::LoadDup128(d8, kByParts);
    const uint8_t* from = scratch.levels + static_cast<size_t>(sub_block) * kLanes * 16;
    V32 rows[4];
    for (size_t i = 0; i < 4; ++i) {
      rows[i] =
          hn::BitCast(d32, hn::TableLookupBytes(hn::Load(d8, from + i * 4 * kLanes), by_parts));
    }
    const V64 low01 = hn::BitCast(d64, hn::InterleaveLower(d32, rows[0], rows[1]));
    const V64 low23 = hn::BitCast(d64, hn::InterleaveLower(d32, rows[2], rows[3]));
    const V64 high01 = hn::BitCast(d64, hn::InterleaveUpper(d32, rows[0], rows[1]));
    const V64 high23 = hn::BitCast(d64, hn::InterleaveUpper(d32, rows[2], rows[3]));
    residual_[0] = hn::BitCast(d32, hn::InterleaveLower(d64, low01, low23));
    residual_[1] = hn::BitCast(d32, hn::InterleaveUpper(d64, low01, low23));
    residual_[2] = hn::BitCast(d32, hn::InterleaveLower(d64, high01, high23));
    residual_[3] = hn::BitCast(d32, hn::InterleaveUpper(d64, high01, high23));
    const hn::Repartition<int8_t, D32> di8;
    for (size_t i = 0; i < kParts; ++i) {
      magnitude_[i] = hn::BitCast(d32, hn::Abs(hn::BitCast(di8, residual_[i])));
    }
  }

  // Bit j: coefficient j is above kLevel in magnitude (at most 128).
  template <int kLevel>
  HWY_INLINE V32 above() const {
    const auto add = hn::Set(d8, static_cast<uint8_t>(127 - kLevel));
    V32 tops[kParts];
    for (size_t i = 0; i < kParts; ++i) {
      tops[i] = hn::BitCast(d32, hn::Add(hn::BitCast(d8, magnitude_[i]), add));
    }
    const V32 nibbles = gather_tops(tops[0], tops[1], tops[2], tops[3]);
    const V32 bytes = hn::And(hn::Or(nibbles, hn::ShiftRight<4>(nibbles)), set32(0x00ff00ff));
    return hn::And(hn::Or(bytes, hn::ShiftRight<8>(bytes)), set32(0xffff));
  }

  // Signs of the first `count` coefficients, the first in the highest of `count` bits.
  HWY_INLINE V32 signs(V32 count) const {
    const V32 nibbles = gather_tops(residual_[3], residual_[2], residual_[1], residual_[0]);
    const V32 bytes =
        hn::And(hn::Or(hn::ShiftLeft<4>(nibbles), hn::ShiftRight<8>(nibbles)), set32(0x00ff00ff));
    const V32 all =
        hn::And(hn::Or(hn::ShiftLeft<8>(bytes), hn::ShiftRight<16>(bytes)), set32(0xffff));
    return hn::Shr(all, hn::Sub(set32(16), count));
  }

  // Magnitude of coefficient j.
  HWY_INLINE V32 magnitude(uint32_t j) const {
    return hn::And(hn::Shr(magnitude_[j % kParts], set32(j / kParts * 8)), set32(255));
  }
  // By lane.
  HWY_INLINE V32 magnitude(V32 j) const {
    const Mask32 odd = has_bit(j, 1);
    const V32 part = choose(has_bit(j, 2), choose(odd, magnitude_[3], magnitude_[2]),
                            choose(odd, magnitude_[1], magnitude_[0]));
    return hn::And(hn::Shr(part, hn::ShiftLeft<1>(hn::And(j, set32(12)))), set32(255));
  }

 private:
  // The top bits of all bytes: those of byte t in the low half of byte t, a's lowest.
  static HWY_INLINE V32 gather_tops(V32 a, V32 b, V32 c, V32 d) {
    const V32 tops = set32(0x80808080);
    return hn::Or(hn::Or(hn::ShiftRight<7>(hn::And(a, tops)), hn::ShiftRight<6>(hn::And(b, tops))),
                  hn::Or(hn::ShiftRight<5>(hn::And(c, tops)), hn::ShiftRight<4>(hn::And(d, tops))));
  }

  V32 residual_[kParts], magnitude_[kParts];
};

// State of coeff_abs_level_remaining within a sub-block.
struct RiceState {
  V32 rice, limit;   // limit: of what rice grows to
  V32 bits, length;  // codes not yet put
};

// Appends the code of a level in the lanes of `active`.
HWY_INLINE void append_remaining(RiceState& state, V32 level, V32 base, Mask32 active) {
  static_assert(sizeof kRemaining.at[0] == sizeof(uint32_t) << 7);
  const V32 remaining = hn::IfThenElseZero(active, hn::Sub(level, base));
  const V32 index = hn::Add(remaining, hn::ShiftLeft<7>(state.rice));
  const V32 code = hn::IfThenElseZero(
      active,
      hn::GatherIndex(d32, &kRemaining.at[0][0], hn::BitCast(hn::RebindToSigned<D32>(), index)));
  const V32 code_length = hn::ShiftRight<16>(code);
  state.bits = hn::Or(hn::Shl(state.bits, code_length), hn::And(code, set32(0xffff)));
  state.length = hn::Add(state.length, code_length);
  const Mask32 grows = hn::And(active, greater(level, hn::Shl(set32(3), state.rice)));
  state.rice = hn::Min(hn::Add(state.rice, hn::IfThenElseZero(grows, set32(1))), state.limit);
}

HWY_INLINE void put_appended(Coder& coder, uint8_t** at, RiceState& state) {
  put_bypass(coder, at, state.bits, state.length);
  state.bits = state.length = hn::Zero(d32);
}

// StatCoeff[3] after the first remaining level of a sub-block (9.3.3.11).
HWY_INLINE V32 next_rice_statistic(V32 statistic, V32 remaining, Mask32 active) {
  const V32 rice = hn::ShiftRight<2>(statistic), one = set32(1);
  const Mask32 up = hn::And(active, hn::Not(greater(hn::Shl(set32(3), rice), remaining)));
  const Mask32 down = hn::And(hn::AndNot(up, active),
                              hn::And(greater(hn::Shl(one, rice), hn::ShiftLeft<1>(remaining)),
                                      greater(statistic, hn::Zero(d32))));
  return hn::Sub(hn::Add(statistic, hn::IfThenElseZero(up, one)), hn::IfThenElseZero(down, one));
}

// With more remaining levels than this in a lane it is fastest to go through all sixteen.
constexpr uint32_t kDenseRest = 9;

// The coefficients whose bits are set in `rest`; first_greater1 has the bit of the first level
// above 1 among the flagged.
HWY_INLINE void put_remaining(Coder& coder, LaneScratch& scratch, const Levels& levels, V32 rest,
                              V32 first_greater1) {
  const V32 zero = hn::Zero(d32), one = set32(1);
  const V32 enabled = load32(scratch.rice_enabled);
  const V32 statistic = load32(scratch.rice_statistic);
  RiceState state = {hn::And(hn::ShiftRight<2>(statistic), enabled),
                     choose(hn::Ne(enabled, zero), set32(kMaxRice), set32(4)), zero, zero};
  const auto index_of = [](V32 bit)
                            HWY_ATTR { return hn::PopulationCount(hn::Sub(bit, set32(1))); };
  const auto base_of = [&](V32 bit) HWY_ATTR {
    return choose(greater(bit, set32(128)), set32(1),
                  choose(hn::Eq(bit, first_greater1), set32(3), set32(2)));
  };
  {
    const V32 bit = hn::And(rest, hn::Sub(zero, rest));
    const Mask32 active = hn::Ne(bit, zero);
    const V32 remaining = hn::Sub(levels.magnitude(index_of(bit)), base_of(bit));
    hn::Store(next_rice_statistic(statistic, remaining, hn::And(active, hn::Ne(enabled, zero))),
              d32, scratch.rice_statistic);
  }
  if (any(greater(hn::PopulationCount(rest), set32(kDenseRest)))) {
    for (uint32_t j = 0; j < 16; j += 2) {
      const V32 bits = hn::And(rest, set32(3u << j));
      if (!any(hn::Ne(bits, zero))) continue;
      for (uint32_t k = j; k < j + 2; ++k) {
        const V32 base = k < 8 ? choose(has_bit(first_greater1, 1u << k), set32(3), set32(2)) : one;
        append_remaining(state, levels.magnitude(k), base, has_bit(rest, 1u << k));
      }
      put_appended(coder, scratch.at, state);
    }
    return;
  }
  while (any(hn::Ne(rest, zero))) {
    for (int i = 0; i < 2; ++i) {
      const V32 bit = hn::And(rest, hn::Sub(zero, rest));
      append_remaining(state, levels.magnitude(index_of(bit)), base_of(bit), hn::Ne(bit, zero));
      rest = hn::Xor(rest, bit);
    }
    put_appended(coder, scratch.at, state);
  }
}

}  // namespace kvcodec::hevc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
