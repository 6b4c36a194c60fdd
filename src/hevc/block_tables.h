// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "hevc/cabac_tables.h"
#include "hevc/remaining_code.h"

// Tables and byte-wise arithmetic of block_encoder.h.
namespace kvcodec::hevc {

inline constexpr uint64_t kOnes = 0x0101010101010101;

inline uint64_t load64(const void* from) {
  uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline void store64(void* to, uint64_t value) { std::memcpy(to, &value, sizeof value); }

// Each byte 1 where it was not zero, else 0.
inline uint64_t nonzero_bytes(uint64_t bytes) {
  constexpr uint64_t kLow7 = 0x7f * kOnes;
  return (((bytes & kLow7) + kLow7) | bytes) >> 7 & kOnes;
}
// Bytes of 0 and 1 to a mask: byte i is bit i, or bit 7 - i.
inline uint32_t to_mask(uint64_t flags) {
  return static_cast<uint32_t>(flags * 0x0102040810204080 >> 56);
}
inline uint32_t to_reversed_mask(uint64_t flags) {
  return static_cast<uint32_t>(flags * 0x8040201008040201 >> 56);
}

// Tables for masks of eight coefficients. In a mask, bit i is scan position i (low) or 8 + i
// (high); coding order is from the highest bit down.
struct MaskTables {
  uint16_t scan_low[256] = {}, scan_high[256] = {};    // raster rows 0-1, 2-3 -> scan order
  uint64_t bins[256] = {};                             // byte j: bit 7 - j
  uint64_t order_low[256] = {}, order_high[256] = {};  // raster indices of the set positions
  uint8_t count[256] = {};
  uint64_t greater1[256] = {};  // records of up to 8 flags, the first in bit 7, less context set

  constexpr MaskTables() {
    uint8_t position_of[16] = {};
    for (int i = 0; i < 16; ++i) position_of[kScan4[i]] = static_cast<uint8_t>(i);
    for (int mask = 0; mask < 256; ++mask) {
      int greater1_context = 1;
      for (int i = 0; i < 8; ++i) {
        if (mask >> i & 1) scan_low[mask] |= static_cast<uint16_t>(1 << position_of[i]);
        if (mask >> i & 1) scan_high[mask] |= static_cast<uint16_t>(1 << position_of[8 + i]);
        const uint64_t bin = mask >> (7 - i) & 1;
        bins[mask] |= bin << 8 * i;
        greater1[mask] |= (static_cast<uint64_t>(greater1_context) << 1 | bin) << 8 * i;
        if (bin != 0) {
          greater1_context = 0;
          order_low[mask] |= static_cast<uint64_t>(kScan4[7 - i]) << 8 * count[mask];
          order_high[mask] |= static_cast<uint64_t>(kScan4[15 - i]) << 8 * count[mask];
          ++count[mask];
        } else if (greater1_context > 0 && greater1_context < 3) {
          ++greater1_context;
        }
      }
    }
  }
};
inline constexpr MaskTables kMasks;

// Records of 16 sig_coeff_flags in coding order, without their bins, by first sub-block or not
// and neighbours; room to read 16 from any of the 16.
struct SignificanceRecords {
  uint8_t at[2][4][32] = {};
  constexpr SignificanceRecords() {
    for (int other = 0; other < 2; ++other) {
      for (int neighbours = 0; neighbours < 4; ++neighbours) {
        for (int j = 0; j < 16; ++j) {
          const int pattern = kSignificancePatterns[neighbours][kScan4[15 - j]];
          const bool dc = other == 0 && j == 15;
          const int context = dc ? kSignificantDc : kSignificant + 3 * other + pattern;
          at[other][neighbours][j] = static_cast<uint8_t>(context << 1);
        }
      }
    }
  }
};
inline constexpr SignificanceRecords kSignificanceRecords;

// remaining_code() as value | bits << 16.
struct RemainingTable {
  uint32_t at[kMaxRice + 1][kMaxRemaining + 1] = {};
  constexpr RemainingTable() {
    for (int rice = 0; rice <= kMaxRice; ++rice) {
      for (uint32_t level = 0; level <= kMaxRemaining; ++level) {
        const RemainingCode code = remaining_code(level, rice);
        at[rice][level] = code.value | static_cast<uint32_t>(code.bits) << 16;
      }
    }
  }
};
inline constexpr RemainingTable kRemaining;

// Levels above these make the Rice parameter grow: without and with persistent_rice.
inline constexpr uint8_t kRiceLimits[2][kMaxRice + 1] = {{3, 6, 12, 24, 255, 255, 255},
                                                         {3, 6, 12, 24, 48, 96, 255}};

}  // namespace kvcodec::hevc
