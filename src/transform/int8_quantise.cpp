// SPDX-License-Identifier: Apache-2.0
#include "transform/int8_quantise.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <vector>

namespace kvcodec::transform {
namespace {

// The sum of term(0) to term(n - 1), in eight interleaved partial sums: an order that is the same
// everywhere and that SIMD code can follow.
template <typename Term>
double sum_of(size_t n, const Term& term) {
  double lanes[8] = {};
  const size_t whole = n / 8 * 8;
  for (size_t i = 0; i < whole; i += 8)
    for (size_t lane = 0; lane < 8; ++lane) lanes[lane] += term(i + lane);
  for (size_t i = whole; i < n; ++i) lanes[i - whole] += term(i);
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

double row_mean(const float* row, size_t n) {
  return n == 0 ? 0 : sum_of(n, [&](size_t i) { return double{row[i]}; }) / static_cast<double>(n);
}

// The largest |row[i] - mean|: at one of the row's extremes.
double row_peak(const float* row, size_t n, double mean) {
  if (n == 0) return 0;
  float low[8], high[8];  // lanes, as above
  std::fill(low, low + 8, row[0]);
  std::fill(high, high + 8, row[0]);
  for (size_t i = 0; i < n; i += 8) {
    const float* strip = row + std::min(i, n < 8 ? 0 : n - 8);  // the last may overlap
    const size_t width = std::min<size_t>(8, n);
    for (size_t lane = 0; lane < width; ++lane) {
      low[lane] = strip[lane] < low[lane] ? strip[lane] : low[lane];
      high[lane] = strip[lane] > high[lane] ? strip[lane] : high[lane];
    }
  }
  return std::max(*std::max_element(high, high + 8) - mean, mean - *std::min_element(low, low + 8));
}

size_t quantise_reference(const float* row, size_t n, float step, int32_t offset, int32_t* codes,
                          uint8_t* samples) {
  size_t escapes = 0;
  for (size_t i = 0; i < n; ++i) {
    codes[i] = static_cast<int32_t>(std::nearbyint(row[i] / step)) - offset;
    const bool escape = std::abs(codes[i]) > kMaxCode;
    samples[i] = escape ? kZeroSample : static_cast<uint8_t>(codes[i] + kZeroSample);
    escapes += escape;
  }
  return escapes;
}

void dequantise_reference(const uint8_t* samples, size_t n, float step, int32_t offset,
                          float* row) {
  for (size_t i = 0; i < n; ++i) row[i] = value_of_code(samples[i] - kZeroSample, step, offset);
}

// The same without calls and branches, for SIMD code. Adding and taking away 1.5 * 2^23 rounds to
// the nearest even integer.
size_t quantise_fast(const float* row, size_t n, float step, int32_t offset, int32_t* codes,
                     uint8_t* samples) {
  constexpr float kRounder = 0x1.8p23f;
  for (size_t i = 0; i < n; ++i)
    codes[i] = static_cast<int32_t>((row[i] / step + kRounder) - kRounder) - offset;
  uint32_t escapes = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t escape = static_cast<uint32_t>(codes[i] + kMaxCode) > 2u * kMaxCode;
    samples[i] = static_cast<uint8_t>(escape ? kZeroSample : codes[i] + kZeroSample);
    escapes += escape;
  }
  return escapes;
}

void dequantise_fast(const uint8_t* samples, size_t n, float step, int32_t offset, float* row) {
  const int32_t shift = offset - kZeroSample;
  for (size_t i = 0; i < n; ++i) row[i] = static_cast<float>(samples[i] + shift) * step;
}

constexpr Int8Ops kVariants[] = {{"reference", quantise_reference, dequantise_reference},
                                 {"branchless", quantise_fast, dequantise_fast}};

}  // namespace

float fit_step(const float* rows, size_t tokens, size_t skipped, const StepRule& rule,
               std::span<int16_t> offsets) {
  const size_t n = tokens - skipped;
  std::vector<double> means(offsets.size());
  double peak = 0, squares = 0, peak_mean = 0;
  for (size_t r = 0; r < means.size(); ++r) {
    const float* row = rows + r * tokens + skipped;
    const double mean = means[r] = row_mean(row, n);
    peak_mean = std::max(peak_mean, std::abs(mean));
    peak = std::max(peak, row_peak(row, n, mean));
    squares += sum_of(n, [&](size_t i) { return (row[i] - mean) * (row[i] - mean); });
  }
  const double count = static_cast<double>(n) * static_cast<double>(offsets.size());
  const double rms = count == 0 ? 0 : std::sqrt(squares / count);
  double wanted = peak == 0 ? 0 : std::min(peak / rule.per_peak, rms / rule.per_rms);
  wanted = std::max(wanted, peak_mean / INT16_MAX);
  const float step = wanted == 0 ? 1.0f : std::max(static_cast<float>(wanted), FLT_MIN);
  for (size_t r = 0; r < offsets.size(); ++r) {
    const double in_steps = std::nearbyint(means[r] / step);
    offsets[r] = static_cast<int16_t>(std::clamp<double>(in_steps, -INT16_MAX, INT16_MAX));
  }
  return step;
}

std::span<const Int8Ops> int8_variants() { return kVariants; }
const Int8Ops& best_int8() { return kVariants[1]; }

float value_of_code(int64_t code, float step, int32_t offset) {
  return static_cast<float>(code + offset) * step;
}

uint8_t spread_key(const int32_t* codes, size_t n) {
  const double squares =
      sum_of(n, [&](size_t i) { return static_cast<double>(codes[i]) * codes[i]; });
  const double mean_square = n == 0 ? 0 : squares / static_cast<double>(n);
  // Half octaves of the rms are octaves of the mean square, from 2^-8 up.
  const int octave = mean_square == 0 ? 0 : std::max(std::ilogb(mean_square) + 8, 0);
  return static_cast<uint8_t>(std::min(octave, 255));
}

}  // namespace kvcodec::transform
