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
  // A sub-block's levels, in coding order, to raster order. The sum of the bytes of both halves of
  // the mask is the number of the level, above 127 where there is none.
  alignas(64) uint8_t expand_high[256][16] = {};
  alignas(64) uint8_t expand_low[256][16] = {};
  // Two bits a scan position from the lowest on: which of the contexts of sig_coeff_flag, by first
  // sub-block or not and neighbours; 3 is that of the first sub-block's DC.
  uint32_t patterns[2][4] = {};

  constexpr LaneTables() {
    for (int i = 0; i < 64; ++i) {
      for (int q = 0; q < 4; ++q) lps[i] |= uint32_t{kRangeLps[i][q]} << 8 * q;
      lps_rotated[i] = std::rotr(lps[i], 9);
    }
    for (int i = 0; i < 128; ++i) {
      next[i] = next_state(static_cast<uint8_t>(i), (i & 1) == 0);
      next_pairs[i / 4] |= next[i] << 8 * (i % 4);
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
          const uint32_t pattern = kSignificancePatterns[neighbours][kScan4[i]];
          patterns[other][neighbours] |= (other == 0 && i == 0 ? 3 : pattern) << 2 * i;
        }
      }
    }
  }
};
inline constexpr LaneTables kLaneTables;

}  // namespace kvcodec::hevc
