// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "hevc/cabac_tables.h"

namespace kvcodec::hevc {

// Tables of decoder_lanes.cpp in the shapes that vectors take.
struct LaneTables {
  alignas(64) uint32_t lps[64] = {};          // LPS ranges by pStateIdx, qRangeIdx 0 lowest
  alignas(64) uint32_t lps_rotated[64] = {};  // the same, rotated right by 9
  // State after the less probable bin, by state; and by pStateIdx two bytes each, valMps 0 lower.
  alignas(64) uint32_t next[128] = {};
  alignas(64) uint32_t next_pairs[32] = {};
  // By pStateIdx, of valMps 0 (for 1 their lowest bit is inverted), after the more and the less
  // probable bin.
  alignas(64) uint8_t more_bytes[64] = {};
  alignas(64) uint8_t next_bytes[64] = {};
  // A sub-block's levels, in coding order, to raster order. The sum of the bytes of both halves of
  // the mask is the number of the level, above 127 where there is none.
  alignas(64) uint8_t expand_high[256][16] = {};
  alignas(64) uint8_t expand_low[256][16] = {};
  // Two bits a scan position from the lowest on: which of the contexts of sig_coeff_flag, by
  // coded neighbours (1: below, 2: right), and from 4 on those outside of the first sub-block; 3 is
  // that of the first sub-block's DC.
  alignas(64) uint32_t patterns[16] = {};
  // By a sub-block in scan order, where the flags of its neighbours are in coded_sub_block_flags
  // read so far, the last one in bit 0: the lower of two adjacent bits, and from bit 8 on which of
  // both (1: below, 2: right) it has.
  alignas(64) uint32_t neighbour_places[64] = {};

  constexpr LaneTables() {
    for (int i = 0; i < 64; ++i) {
      for (int q = 0; q < 4; ++q) lps[i] |= uint32_t{kRangeLps[i][q]} << 8 * q;
      lps_rotated[i] = std::rotr(lps[i], 9);
    }
    for (int i = 0; i < 128; ++i) {
      next[i] = next_state(static_cast<uint8_t>(i), (i & 1) == 0);
      next_pairs[i / 4] |= next[i] << 8 * (i % 4);
      if (i % 2 == 0) next_bytes[i / 2] = static_cast<uint8_t>(next[i]);
      if (i % 2 == 0) more_bytes[i / 2] = next_state(static_cast<uint8_t>(i), false);
    }
    for (int mask = 0; mask < 256; ++mask) {
      int count = 0;
      for (int i = 7; i >= 0; --i) {
        const bool there = (mask >> i & 1) != 0;
        expand_high[mask][kScan4[8 + i]] = static_cast<uint8_t>(there ? count : 128);
        expand_low[mask][kScan4[i]] = static_cast<uint8_t>(there ? count : 128);
        count += there ? 1 : 0;
      }
      for (int i = 0; i < 8; ++i) expand_high[mask][kScan4[i]] = static_cast<uint8_t>(count);
    }
    for (int other = 0; other < 2; ++other) {
      for (int neighbours = 0; neighbours < 4; ++neighbours) {
        for (int i = 0; i < 16; ++i) {
          const int right_below = neighbours >> 1 | (neighbours & 1) << 1;
          const uint32_t pattern = kSignificancePatterns[right_below][kScan4[i]];
          patterns[4 * other + neighbours] |= (other == 0 && i == 0 ? 3 : pattern) << 2 * i;
        }
      }
    }
    uint32_t position_of[64] = {};
    for (uint32_t i = 0; i < 64; ++i) position_of[kScan8[i]] = i;
    for (uint32_t i = 0; i < 64; ++i) {
      const uint32_t at = kScan8[i];
      const bool has_right = at % 8 < 7, has_below = at / 8 < 7;
      // Right is read just before below.
      if (has_below) neighbour_places[i] = position_of[at + 8] - i - 1;
      if (!has_below && has_right) neighbour_places[i] = position_of[at + 1] - i - 2;
      neighbour_places[i] |= (has_below ? 1u << 8 : 0) | (has_right ? 2u << 8 : 0);
    }
  }
};
inline constexpr LaneTables kLaneTables;

}  // namespace kvcodec::hevc
