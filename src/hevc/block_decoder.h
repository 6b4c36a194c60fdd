// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "hevc/decoder_variants.h"
#include "hevc/slice_walk.h"

// The same syntax as decoder_reference.cpp, which explains it. What makes this one fast: no branch
// depends on a bin of significance, and the bypass bins of a sub-block are one division.
namespace kvcodec::hevc {

// sig_coeff_flag contexts by first sub-block or not, neighbours and scan position.
struct SignificanceContexts {
  uint8_t at[2][4][16] = {};
  constexpr SignificanceContexts() {
    for (int other = 0; other < 2; ++other) {
      for (int neighbours = 0; neighbours < 4; ++neighbours) {
        for (int i = 0; i < 16; ++i) {
          const int pattern = kSignificancePatterns[neighbours][kScan4[i]];
          const bool dc = other == 0 && i == 0;
          at[other][neighbours][i] =
              static_cast<uint8_t>(dc ? kSignificantDc : kSignificant + 3 * other + pattern);
        }
      }
    }
  }
};
inline constexpr SignificanceContexts kSignificanceContexts;

// One picture, from sub-block to sub-block.
class BlockDecoder {
 public:
  using Cabac = CabacReader<uint64_t, 1>;

  // Takes pictures until one has a sub-block to decode; false where there are no more.
  bool take(JobSource& source) {
    while (SliceJob* job = source.take()) {
      if (begin(*job)) return true;
      source.finish(*job);
    }
    return false;
  }

  // sig_coeff_flags of the sub-blocks that n pictures are at: masks of scan positions. Together,
  // because one waits for its arithmetic decoder most of the time.
  template <int n>
  [[gnu::always_inline]] static void significance(BlockDecoder* const (&at)[n],
                                                  uint32_t (&masks)[n]) {
    Cabac cabac[n];  // see LaneReader
    const uint8_t* contexts[n];
    bool whole = true;
    for (int k = 0; k < n; ++k) {
      cabac[k] = at[k]->cabac_;
      contexts[k] = at[k]->contexts_here();
      masks[k] = 0;
      whole &= !at[k]->walk_.begins_block();
    }
    if (whole) {
      for (int i = 15; i > 0; --i) {
        for (int k = 0; k < n; ++k) {
          if (i % Cabac::kFilled == Cabac::kFilled - 1) cabac[k].refill();
          masks[k] |= (cabac[k].get_filled(contexts[k][i]) ? 1u : 0u) << i;
        }
      }
      for (int k = 0; k < n; ++k) {
        // The only coefficient of a coded sub-block is known when it comes last.
        const bool known = masks[k] == 0 && at[k]->walk_.sub_block() > 0;
        masks[k] |= known || cabac[k].get_filled(contexts[k][0]) ? 1u : 0u;
      }
    } else {
      for (int k = 0; k < n; ++k) {
        const int start = at[k]->walk_.start();
        masks[k] = 1u << start & 0xffff;
        for (int i = start - 1; i > 0; --i) {
          masks[k] |= (cabac[k].get(contexts[k][i]) ? 1u : 0u) << i;
        }
        const bool known = masks[k] == 0 && at[k]->walk_.sub_block() > 0;
        if (start > 0) masks[k] |= known || cabac[k].get(contexts[k][0]) ? 1u : 0u;
      }
    }
    for (int k = 0; k < n; ++k) at[k]->cabac_ = cabac[k];
  }

  // The sub-block's levels, and on to the next one; false where there are no more pictures.
  [[gnu::always_inline]] bool advance(JobSource& source, uint32_t mask) {
    Cabac cabac = cabac_;
    if (walk_.begins_block()) greater1_seen_ = false;
    if (mask != 0 && !levels(cabac, mask, walk_.sub_block() > 0 ? 2 : 0)) {
      walk_.fail(SliceFaultKind::general);
    } else if (walk_.next(cabac)) {
      cabac_ = cabac;
      return true;
    }
    source.finish(walk_.job());
    return take(source);
  }

 private:
  bool begin(SliceJob& job) {
    walk_.begin(job);
    persistent_rice_ = job.parameters.persistent_rice;
    statistic_ = 0;
    const ContextStates states = initial_contexts(SliceType::p);
    for (size_t i = 0; i < states.size(); ++i) contexts_[i] = kRead.state[states[i]];
    Cabac cabac(walk_.window().bytes(), 9, 510, walk_.first_offset(), contexts_.data());
    const bool begun = walk_.begin_block(cabac);
    cabac_ = cabac;
    return begun;
  }

  const uint8_t* contexts_here() const {
    return kSignificanceContexts.at[walk_.sub_block() > 0 ? 1 : 0][walk_.neighbours()];
  }

  // False at a level that no 8-bit sample has.
  [[gnu::always_inline]] bool levels(Cabac& cabac, uint32_t mask, int first_set) {
    const int count = std::popcount(mask), flags = std::min(count, 8);
    const int set = first_set + (greater1_seen_ ? 1 : 0);
    const int contexts = kGreater1 + 4 * set;
    uint32_t greater1 = 0;  // the first in bit 7
    int context = 1;
    for (int i = 0; i < flags; ++i) {
      const bool greater = cabac.get(contexts + context);
      greater1 |= (greater ? 0x80u : 0u) >> i;
      context = greater || context == 0 ? 0 : std::min(context + 1, 3);
    }
    greater1_seen_ = greater1 != 0;
    const int first = std::countl_zero(greater1) - 24;
    uint32_t rest = greater1;
    if (greater1 != 0 && !cabac.get(kGreater2 + set)) rest ^= 0x80u >> first;

    uint8_t level[16];
    for (int i = 0; i < 8; ++i) level[i] = static_cast<uint8_t>(1 + (greater1 << i >> 7 & 1));
    uint64_t string = cabac.peek_bypass();
    const auto signs = static_cast<uint32_t>(string >> 32) & 0xffff0000u << (16 - count);
    bool good = true;
    if (rest == 0 && count <= 8) {
      cabac.skip_bypass(string, count);
    } else {
      good = remaining(cabac, string, level, count, rest, first);
    }

    size_t stride;
    uint8_t* target = walk_.target(walk_.sub_block(), stride);
    for (int i = 0; i < count; ++i) {
      const int position = 31 - std::countl_zero(mask);
      mask ^= 1u << position;
      const uint32_t sign = signs << i >> 31;  // 1: negative
      target[kScan4[position] / 4 * stride + kScan4[position] % 4] =
          static_cast<uint8_t>(128 + ((level[i] ^ (0 - sign)) + sign));
      good &= level[i] <= 127 + sign;
    }
    return good;
  }

  // coeff_abs_level_remaining of the first eight in `rest` and all others; `string` begins with
  // their signs.
  [[gnu::always_inline]] bool remaining(Cabac& cabac, uint64_t string, uint8_t* level, int count,
                                        uint32_t rest, int first) {
    int rice = persistent_rice_ ? statistic_ >> 2 : 0;
    int taken = count;
    uint64_t ahead = string << count;
    bool update = persistent_rice_;
    const int limit = persistent_rice_ ? 32 : 4;
    const auto get = [&](int i, uint32_t base) {
      if (taken > Cabac::kPeek - kMaxRemainingBits) {
        cabac.skip_bypass(string, taken);
        string = ahead = cabac.peek_bypass();
        taken = 0;
      }
      const int prefix = std::countl_zero(~ahead);
      const int extra = std::max(prefix, 3) - 3;
      const int suffix = rice + extra, bits = prefix + 1 + suffix;
      if (bits > kMaxRemainingBits) return false;
      const uint32_t high = (1u << extra) + static_cast<uint32_t>(std::min(prefix, 3)) - 1;
      const auto low = static_cast<uint32_t>(ahead << (prefix + 1) >> 1 >> (63 - suffix));
      const uint32_t value = (high << rice) + low;
      ahead <<= bits;
      taken += bits;
      if (update) {
        update = false;
        if (value >= 3u << rice) {
          ++statistic_;
        } else if (2 * value < 1u << rice && statistic_ > 0) {
          --statistic_;
        }
      }
      if (base + value > 128) return false;
      level[i] = static_cast<uint8_t>(base + value);
      rice = std::min(rice + (base + value > 3u << rice ? 1 : 0), limit);
      return true;
    };
    while (rest != 0) {
      const int i = std::countl_zero(rest) - 24;
      rest ^= 0x80u >> i;
      if (!get(i, i == first ? 3 : 2)) return false;
    }
    for (int i = 8; i < count; ++i) {
      if (!get(i, 1)) return false;
    }
    cabac.skip_bypass(string, taken);
    return true;
  }

  bool persistent_rice_ = false;
  bool greater1_seen_ = false;
  int statistic_ = 0;  // StatCoeff[3]
  std::array<uint64_t, kContextCount> contexts_;
  Cabac cabac_;
  SliceWalk walk_;
};

// While n pictures are there.
template <int n>
[[gnu::always_inline]] inline int decode_together(JobSource& source, BlockDecoder* (&at)[n]) {
  uint32_t masks[n];
  while (true) {
    BlockDecoder::significance(at, masks);
    int left = 0;
#pragma GCC unroll 1
    for (int k = 0; k < n; ++k) {
      if (at[k]->advance(source, masks[k])) at[left++] = at[k];
    }
    if (left < n) return left;
  }
}

// Two are enough: a third hides no more.
inline void decode_with_blocks(JobSource& source) {
  BlockDecoder first, second;
  BlockDecoder* both[] = {&first, &second};
  BlockDecoder* last[] = {&first};
  if (!first.take(source)) return;
  if (second.take(source)) {
    if (decode_together<2>(source, both) == 0) return;
    last[0] = both[0];
  }
  decode_together<1>(source, last);
}

}  // namespace kvcodec::hevc
