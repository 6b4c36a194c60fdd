// SPDX-License-Identifier: Apache-2.0
#include "transform/code_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "transform/int8_quantise.h"

namespace kvcodec::transform {

void RateModel::add(const uint8_t* samples, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const auto size = static_cast<size_t>(std::abs(int{samples[i]} - int{kZeroSample}));
    ++count_[std::min(size, kMagnitudes - 1)];
  }
}

std::array<float, RateModel::kMagnitudes> RateModel::bits() const {
  uint64_t all = 0;
  for (uint64_t count : count_) all += count;
  std::array<float, kMagnitudes> out{};
  // Half a count more for each: what was not seen is dear and not impossible (Krichevsky and
  // Trofimov, 1981).
  const double total = static_cast<double>(all) + 0.5 * kMagnitudes;
  for (size_t k = 0; k < kMagnitudes; ++k) {
    const double bits = std::log2(total / (static_cast<double>(count_[k]) + 0.5));
    out[k] = static_cast<float>(bits + (k > 0 ? 1 : 0));
  }
  return out;
}

void lower_codes(const float* y, size_t n, float step, const std::array<float, 16>& bits,
                 uint8_t* samples) {
  constexpr int kMost = RateModel::kMagnitudes - 1;
  for (size_t i = 0; i < n; ++i) {
    const int code = int{samples[i]} - int{kZeroSample};
    const int size = std::abs(code);
    if (size == 0 || size >= kMost) continue;
    const float at = std::abs(y[i]) / step;
    int best = size;
    float least = HUGE_VALF;
    for (int k = size; k >= std::max(0, size - 2); --k) {
      const float off = at - static_cast<float>(k);
      const float cost = off * off + kBitWorth * bits[static_cast<size_t>(k)];
      if (cost < least) {
        least = cost;
        best = k;
      }
    }
    samples[i] = static_cast<uint8_t>(int{kZeroSample} + (code < 0 ? -best : best));
  }
}

}  // namespace kvcodec::transform
