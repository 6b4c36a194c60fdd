// SPDX-License-Identifier: Apache-2.0
// Coding tree units of all lanes at once: residual_coding (7.3.8.11) as encoder_reference.cpp
// explains it, sub-block by sub-block in lock step.
#if defined(KVCODEC_HEVC_LANE_BLOCK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCODEC_HEVC_LANE_BLOCK_INL_H
#undef KVCODEC_HEVC_LANE_BLOCK_INL_H
#else
#define KVCODEC_HEVC_LANE_BLOCK_INL_H
#endif

#include "hevc/lane_cabac-inl.h"
#include "hevc/lane_levels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcodec::hevc::HWY_NAMESPACE {

class BlockCoder {
 public:
  explicit BlockCoder(LaneScratch& scratch) : scratch_(scratch) {}

  // cu_transquant_bypass_flag and cu_skip_flag (`skip`) in the lanes of `active`, of which
  // scratch.flags counts the skipped neighbours.
  HWY_INLINE void put_head(Coder& coder, Mask32 skip, Mask32 active) {
    reserve_group(coder, scratch_.at);
    Pending pending = nothing();
    put(coder, pending, kCuTransquantBypass, set32(1), active);
    const V32 neighbours = load32(scratch_.flags);
    const Mask32 one = has_bit(neighbours, 1), two = has_bit(neighbours, 2);
    const V32 none_state = load(kCuSkip), one_state = load(kCuSkip + 1),
              two_state = load(kCuSkip + 2);
    const V32 state = choose(two, two_state, choose(one, one_state, none_state));
    const V32 next = put_bin(coder, pending, state, hn::IfThenElseZero(skip, set32(1)), active);
    store(kCuSkip, choose(hn::Or(one, two), none_state, next));
    store(kCuSkip + 1, choose(one, next, one_state));
    store(kCuSkip + 2, choose(two, next, two_state));
    fold(coder, pending);
  }

  // The rest of a coded unit of the lanes of `active`.
  HWY_INLINE void put_unit(Coder& coder, Mask32 active) {
    reserve_group(coder, scratch_.at);
    Pending pending = nothing();
    const V32 zero = hn::Zero(d32), one = set32(1);
    put(coder, pending, kPredMode, zero, active);
    put(coder, pending, kPartMode, one, active);
    put(coder, pending, kMerge, one, active);
    fold(coder, pending);
    reserve_group(coder, scratch_.at);
    put(coder, pending, kCbfChroma, zero, active);
    put(coder, pending, kCbfChroma, zero, active);
    fold(coder, pending);
    put_last_position(coder, active);
    put_sub_blocks(coder, active);
  }

 private:
  HWY_INLINE V32 load(int context) const { return load32(scratch_.states + context * kLanes); }
  HWY_INLINE void store(int context, V32 state) {
    hn::Store(state, d32, scratch_.states + context * kLanes);
  }
  HWY_INLINE void put(Coder& coder, Pending& pending, int context, V32 bits, Mask32 active) {
    store(context, put_bin(coder, pending, load(context), bits, active));
  }

  HWY_INLINE void put_last_prefix(Coder& coder, int context, V32 prefix, Mask32 active) {
    for (uint32_t bin = 0; bin < 9; ++bin) {
      const Mask32 sent = hn::And(active, greater(prefix, set32(bin - 1)));
      if (!any(sent)) break;
      reserve_group(coder, scratch_.at);
      Pending pending = nothing();
      const V32 bits = hn::IfThenElseZero(greater(prefix, set32(bin)), set32(1));
      put(coder, pending, context + static_cast<int>(bin / 2), bits, sent);
      fold(coder, pending);
    }
  }

  HWY_INLINE void put_last_position(Coder& coder, Mask32 active) {
    HWY_ALIGN uint32_t prefixes[2][kLanes], suffix[kLanes], suffix_bits[kLanes];
    for (size_t lane = 0; lane < kLanes; ++lane) {
      suffix[lane] = suffix_bits[lane] = 0;
      const uint32_t at[2] = {scratch_.last_x[lane], scratch_.last_y[lane]};
      for (int i = 0; i < 2; ++i) {
        const uint32_t prefix = kLastPrefix[at[i]];
        prefixes[i][lane] = prefix;
        if (prefix > 3) {
          const uint32_t bits = prefix / 2 - 1;
          suffix[lane] = suffix[lane] << bits | (at[i] - kLastPrefixBase[prefix]);
          suffix_bits[lane] += bits;
        }
      }
    }
    put_last_prefix(coder, kLastX, load32(prefixes[0]), active);
    put_last_prefix(coder, kLastY, load32(prefixes[1]), active);
    put_bypass(coder, scratch_.at, hn::IfThenElseZero(active, load32(suffix)),
               hn::IfThenElseZero(active, load32(suffix_bits)));
  }

  HWY_INLINE void put_sub_blocks(Coder& coder, Mask32 active) {
    const V32 last = load32(scratch_.last_sub_block);
    const V32 zero = hn::Zero(d32);
    const Mask32 idle = hn::Not(active);
    Mask32 greater1_seen = hn::Ne(zero, zero);
    for (int i = 63; i >= 0; --i) {
      const Mask32 within = hn::And(active, greater(last, set32(static_cast<uint32_t>(i) - 1)));
      if (!any(within)) continue;
      const Mask32 is_last = hn::And(active, hn::Eq(last, set32(static_cast<uint32_t>(i))));
      const V32 nonzero = load_nonzero(i);
      const Mask32 filled = hn::And(within, hn::Ne(nonzero, zero));
      const uint32_t at = kScan8[i], bit = 1u << at % 32;
      const Mask32 right = has_bit(load32(scratch_.right[at / 32]), bit);
      const Mask32 below = has_bit(load32(scratch_.below[at / 32]), bit);
      Mask32 coded = within;
      if (i > 0) {
        const Mask32 flagged = hn::AndNot(is_last, within);
        if (any(flagged)) put_coded_flag(coder, hn::Or(right, below), filled, flagged);
        coded = filled;  // as the last sub-block is
        if (!any(coded)) continue;
      }
      // The last flag in coding order is sent where others are not zero.
      const Mask32 sent = hn::Ne(hn::And(nonzero, set32(0x7fff)), zero);
      const Mask32 plain = hn::And(hn::And(right, below), hn::AndNot(is_last, coded));
      if (i > 0 && hn::AllTrue(d32, hn::Or(idle, hn::And(plain, sent)))) {
        put_plain_significance(coder, nonzero);
      } else {
        put_significance(coder, i, nonzero, right, below, is_last, coded);
      }
      if (any(filled)) put_levels(coder, i, nonzero, filled, greater1_seen);
    }
  }

  HWY_INLINE V32 load_nonzero(int sub_block) const {
    const hn::Rebind<uint16_t, D32> d16;
    return hn::PromoteTo(d32, hn::Load(d16, scratch_.nonzero + sub_block * kLanes));
  }

  HWY_INLINE void put_coded_flag(Coder& coder, Mask32 neighbour, Mask32 filled, Mask32 flagged) {
    reserve_group(coder, scratch_.at);
    Pending pending = nothing();
    const V32 without = load(kCodedSubBlock), with = load(kCodedSubBlock + 1);
    const V32 next = put_bin(coder, pending, choose(neighbour, with, without),
                             hn::IfThenElseZero(filled, set32(1)), flagged);
    store(kCodedSubBlock, choose(neighbour, without, next));
    store(kCodedSubBlock + 1, choose(neighbour, next, with));
    fold(coder, pending);
  }

  // All sixteen sig_coeff_flags, of one context, of every lane: idle ones may code what they like.
  HWY_INLINE void put_plain_significance(Coder& coder, V32 nonzero) {
    V32 state = load(kSignificant + 3 + 2);
    for (int group = 0; group < 4; ++group) {
      reserve_group(coder, scratch_.at);
      Pending pending = nothing();
      for (uint32_t j = 0; j < kBinGroup; ++j) {
        state = put_bin(coder, pending, state, nonzero);
        nonzero = hn::ShiftRight<1>(nonzero);
      }
      fold(coder, pending);
    }
    store(kSignificant + 3 + 2, state);
  }

  // Contexts of 16 flags in coding order, two bits each.
  static constexpr uint32_t packed_pattern(int neighbours) {
    uint32_t packed = 0;
    for (uint32_t j = 0; j < 16; ++j) {
      packed |= uint32_t{kSignificancePatterns[neighbours][kScan4[15 - j]]} << 2 * j;
    }
    return packed;
  }

  HWY_INLINE void put_significance(Coder& coder, int sub_block, V32 nonzero, Mask32 right,
                                   Mask32 below, Mask32 is_last, Mask32 coded) {
    static constexpr uint32_t kPatterns[4] = {packed_pattern(0), packed_pattern(1),
                                              packed_pattern(2), packed_pattern(3)};
    V32 pattern = choose(right, choose(below, set32(kPatterns[3]), set32(kPatterns[1])),
                         choose(below, set32(kPatterns[2]), set32(kPatterns[0])));
    // Flags that are sent: all, after the block's last coefficient, and the last one only where it
    // is not known.
    const V32 all = set32(0xffff);
    V32 sent =
        choose(is_last, hn::And(hn::Shl(set32(0xfffe), load32(scratch_.last_index)), all), all);
    if (sub_block > 0) {
      const Mask32 inferred =
          hn::AndNot(is_last, hn::Eq(hn::And(nonzero, set32(0x7fff)), hn::Zero(d32)));
      sent = choose(inferred, set32(0x7fff), sent);
    }
    sent = hn::IfThenElseZero(coded, sent);
    const int base = kSignificant + (sub_block > 0 ? 3 : 0);
    V32 state0 = load(base), state1 = load(base + 1), state2 = load(base + 2);
    for (int group = 0; group < 4; ++group) {
      reserve_group(coder, scratch_.at);
      Pending pending = nothing();
      for (uint32_t j = 0; j < kBinGroup; ++j) {
        const Mask32 active = has_bit(sent, 1);
        if (sub_block == 0 && group == 3 && j == 3) {
          put(coder, pending, kSignificantDc, nonzero, active);
          break;
        }
        const Mask32 one = has_bit(pattern, 1), two = has_bit(pattern, 2);
        const V32 state = choose(two, state2, choose(one, state1, state0));
        const V32 next = put_bin(coder, pending, state, nonzero, active);
        state0 = choose(hn::Or(one, two), state0, next);
        state1 = choose(one, next, state1);
        state2 = choose(two, next, state2);
        nonzero = hn::ShiftRight<1>(nonzero);
        sent = hn::ShiftRight<1>(sent);
        pattern = hn::ShiftRight<2>(pattern);
      }
      fold(coder, pending);
    }
    store(base, state0);
    store(base + 1, state1);
    store(base + 2, state2);
  }

  // Greater-than flags, signs and remaining levels of the lanes of `filled`.
  HWY_INLINE void put_levels(Coder& coder, int sub_block, V32 nonzero, Mask32 filled,
                             Mask32& greater1_seen) {
    const Levels levels(scratch_, sub_block);
    const V32 count = hn::PopulationCount(hn::IfThenElseZero(filled, nonzero));
    const int first_set = sub_block > 0 ? 2 : 0;
    const int set0 = kGreater1 + 4 * first_set, set1 = set0 + 4;
    V32 states[4];
    for (int c = 0; c < 4; ++c) states[c] = choose(greater1_seen, load(set1 + c), load(set0 + c));

    const V32 above1 = hn::IfThenElseZero(filled, levels.above<1>());
    V32 bits = hn::And(above1, set32(255));
    const V32 first_bit =
        hn::And(bits, hn::Sub(hn::Zero(d32), bits));  // of the first level above 1
    V32 seen = hn::Zero(d32);                         // all ones from the first on
    put_greater1_group<0>(coder, states, bits, count, seen);
    if (any(greater(count, set32(4)))) put_greater1_group<4>(coder, states, bits, count, seen);
    for (int c = 0; c < 4; ++c) {
      store(set0 + c, choose(greater1_seen, load(set0 + c), states[c]));
      store(set1 + c, choose(greater1_seen, states[c], load(set1 + c)));
    }
    const Mask32 with_greater1 = hn::Ne(first_bit, hn::Zero(d32));
    const V32 above2 = hn::And(levels.above<2>(), first_bit);
    if (any(with_greater1)) {
      reserve_group(coder, scratch_.at);
      Pending pending = nothing();
      const V32 unseen = load(kGreater2 + first_set), with_seen = load(kGreater2 + first_set + 1);
      const V32 bin = hn::IfThenElseZero(hn::Ne(above2, hn::Zero(d32)), set32(1));
      const V32 next =
          put_bin(coder, pending, choose(greater1_seen, with_seen, unseen), bin, with_greater1);
      store(kGreater2 + first_set, choose(greater1_seen, unseen, next));
      store(kGreater2 + first_set + 1, choose(greater1_seen, next, with_seen));
      fold(coder, pending);
    }
    greater1_seen = hn::Or(hn::AndNot(filled, greater1_seen), with_greater1);

    put_bypass(coder, scratch_.at, hn::IfThenElseZero(filled, levels.signs(count)), count);
    // Levels that the flags do not tell.
    const V32 flagged = hn::Or(hn::AndNot(first_bit, hn::And(above1, set32(255))), above2);
    const V32 unflagged = hn::AndNot(set32(255), hn::Sub(hn::Shl(set32(1), count), set32(1)));
    const V32 rest = hn::Or(flagged, unflagged);
    if (any(hn::Ne(rest, hn::Zero(d32)))) {
      put_remaining(coder, scratch_, levels, rest, first_bit);
    }
  }

  template <uint32_t kFirst>
  HWY_INLINE void put_greater1_group(Coder& coder, V32* states, V32& bits, V32 count, V32& seen) {
    reserve_group(coder, scratch_.at);
    Pending pending = nothing();
    for (uint32_t j = kFirst; j < kFirst + kBinGroup; ++j) {
      const Mask32 active = greater(count, set32(j));
      const Mask32 after = has_bit(seen, 1);
      V32& before = states[j < 2 ? j + 1 : 3];
      const V32 next = put_bin(coder, pending, choose(after, states[0], before), bits, active);
      states[0] = choose(after, next, states[0]);
      before = choose(after, before, next);
      seen = hn::Or(seen, hn::And(bits, set32(1)));
      bits = hn::ShiftRight<1>(bits);
    }
    fold(coder, pending);
  }

  LaneScratch& scratch_;
};

}  // namespace kvcodec::hevc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
