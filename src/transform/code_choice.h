// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvcodec::transform {

// Rate-distortion optimised choice of codes (Sullivan and Wiegand, "Rate-distortion optimization
// for video compression", 1998): a code nearer to zero is taken where the bits that it saves are
// worth more than the error it adds. Readers see codes only, so no format changes.

// Rows whose codes share one rate model: those of a coding tree block, as they share contexts.
inline constexpr size_t kRateRows = 32;
// What a bit is worth in squares of a step: at high rates -dD/dR of a uniform quantiser is
// 2 ln 2 / 12 (Gish and Pierce, 1968); measured in docs/calibration.md.
inline constexpr float kBitWorth = 0.115f;

// Samples as their probabilities have it: bits of a code's magnitude and sign, by order-0 entropy.
class RateModel {
 public:
  void add(const uint8_t* samples, size_t n);
  void add_count(size_t magnitude, uint64_t n) { count_[magnitude] += n; }
  static constexpr size_t kMagnitudes = 16;
  // Bits of magnitude k for k below kMagnitudes, made from what was added.
  std::array<float, kMagnitudes> bits() const;

 private:
  std::array<uint64_t, kMagnitudes> count_{};  // the last: that and more
};

// Lowers codes of one row where that pays. samples: code + kZeroSample; y: what they are codes of,
// in order. Magnitudes of kMagnitudes - 1 and more, and escapes (samples of zero with y far off),
// stay.
void lower_codes(const float* y, size_t n, float step, const std::array<float, 16>& bits,
                 uint8_t* samples);

}  // namespace kvcodec::transform
