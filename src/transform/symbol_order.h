// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace kvcodec::transform {

// How tier exact turns a symbol's offset from its row's centre into a sample (docs/format.md,
// "Tier exact"). Exponents spread further below the median than above it; HEVC spends a whole bit
// on a sign, so samples on either side of 128 must be equally likely: offsets are taken in the
// order of their frequency and laid out 128, 129, 127, 130, ... It saves 4 % of the symbols plane.
struct SymbolOrder {
  std::array<uint8_t, 256> sample_of{};  // by offset mod 256
  std::array<uint8_t, 256> offset_of{};  // by sample; mod 256

  constexpr SymbolOrder() {
    int next_below = -3, next_above = 3;
    for (int i = 0; i < 256; ++i) {
      constexpr int kFirst[] = {0, 1, -1, -2, 2};
      int offset = 0;
      if (i < 5) {
        offset = kFirst[i];
      } else if (next_below >= -128 && (i - 5) % 4 != 3) {
        offset = next_below--;
      } else {
        offset = next_above++;
      }
      const int sample = 128 + (i % 2 == 1 ? (i + 1) / 2 : -(i / 2));
      sample_of[static_cast<uint8_t>(offset)] = static_cast<uint8_t>(sample);
      offset_of[static_cast<uint8_t>(sample)] = static_cast<uint8_t>(offset);
    }
  }
};
inline constexpr SymbolOrder kSymbolOrder;

}  // namespace kvcodec::transform
