// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvcodec::transform {

// Calibrated tiers: code = sign(y) floor(|y| / step + 1 - dead_zone), and back
// y = sign(code) (|code| + delta) step, delta[0] where |code| is 1 and delta[1] where it is more
// (docs/format.md, "Calibrated tiers"; the dead zone is that of Sullivan, "Efficient scalar
// quantization of exponential and Laplacian random variables", 1996).

// Codes are below this; a larger one means that a value has nothing to do with the step.
inline constexpr int32_t kMaxComponentCode = 1 << 23;

// Writes n codes and returns the largest magnitude, kMaxComponentCode where one is not below it
// (NaN too).
int32_t quantise_components(const float* y, size_t n, float step, float dead_zone, int32_t* codes);

// The sum of eight interleaved partial sums: an order that SIMD code and GPUs follow.
double add_lanes(const double (&lanes)[8]);

// Sums from which the deltas of a group follow: where in their cells the values lie. A row's own
// sum first, then row after row.
class CentroidSums {
 public:
  // What add() adds, summed elsewhere: of codes of magnitude 1 (k = 0) or more (k = 1).
  void add_row(size_t k, double sum, uint32_t count) {
    sum_[k] += sum;
    count_[k] += count;
  }
  void add(const float* y, const int32_t* codes, size_t n, float step);
  std::array<float, 2> deltas() const;  // 0 where there is no such code

 private:
  double sum_[2] = {0, 0};
  uint64_t count_[2] = {0, 0};
};

float component_of_code(int32_t code, float step, const float (&delta)[2]);

}  // namespace kvcodec::transform
