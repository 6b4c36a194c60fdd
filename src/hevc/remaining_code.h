// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvcodec::hevc {

// Bits of a coeff_abs_level_remaining.
struct RemainingCode {
  uint32_t value;
  int bits;
};

// Binarisation of 9.3.3.11 with Rice parameter `rice`: a prefix of up to 3 ones and a zero with
// `rice` more bits, then Exp-Golomb of order rice + 1. At most 16 bits for levels of 8-bit samples.
constexpr RemainingCode remaining_code(uint32_t level, int rice) {
  if (const uint32_t prefix = level >> rice; prefix <= 3) {
    const uint32_t ones = (1u << prefix) - 1;
    return {(ones << 1) << rice | (level & ((1u << rice) - 1)),
            static_cast<int>(prefix) + 1 + rice};
  }
  uint32_t rest = level - (4u << rice);
  int length = rice + 1, ones = 4;
  while (rest >= 1u << length) {
    rest -= 1u << length;
    ++length;
    ++ones;
  }
  return {((1u << ones) - 1) << 1 << length | rest, ones + 1 + length};
}

// Largest remaining level and Rice parameter that samples of 8 bits lead to: |sample - 128| <= 128
// less 1; the parameter grows past p only on a level above 3 << p.
inline constexpr uint32_t kMaxRemaining = 127;
inline constexpr int kMaxRice = 6;
inline constexpr int kMaxRemainingBits = 16;

}  // namespace kvcodec::hevc
