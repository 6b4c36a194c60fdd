// SPDX-License-Identifier: Apache-2.0
#include "transform/component_quantise.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace kvcodec::transform {

int32_t quantise_components(const float* y, size_t n, float step, float dead_zone, int32_t* codes) {
  constexpr auto kMost = static_cast<float>(kMaxComponentCode);
  const float shift = 1 - dead_zone;
  int32_t peak = 0;
  for (size_t i = 0; i < n; ++i) {
    const float cell = std::abs(y[i]) / step + shift;
    const auto size = static_cast<int32_t>(cell < kMost ? cell : kMost);
    codes[i] = y[i] < 0 ? -size : size;
    peak = std::max(peak, size);
  }
  return peak;
}

void CentroidSums::add(const float* y, const int32_t* codes, size_t n, float step) {
  double lanes[2][8] = {};
  uint32_t counts[2] = {};
  for (size_t i = 0; i < n; ++i) {
    if (codes[i] == 0) continue;
    const int32_t size = std::abs(codes[i]);
    lanes[size > 1][i % 8] += double{std::abs(y[i])} / step - size;
    ++counts[size > 1];
  }
  for (size_t k = 0; k < 2; ++k) add_row(k, add_lanes(lanes[k]), counts[k]);
}

double add_lanes(const double (&lanes)[8]) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

std::array<float, 2> CentroidSums::deltas() const {
  std::array<float, 2> out{};
  for (size_t i = 0; i < 2; ++i) {
    if (count_[i] == 0) continue;
    const double mean = sum_[i] / static_cast<double>(count_[i]);
    out[i] = static_cast<float>(std::clamp(mean, -1.0, 1.0));
  }
  return out;
}

float component_of_code(int32_t code, float step, const float (&delta)[2]) {
  if (code == 0) return 0;
  const int32_t size = std::abs(code);
  const float y = (static_cast<float>(size) + delta[size > 1]) * step;
  return code < 0 ? -y : y;
}

}  // namespace kvcodec::transform
