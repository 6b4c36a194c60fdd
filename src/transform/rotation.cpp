// SPDX-License-Identifier: Apache-2.0
#include "transform/rotation.h"

namespace kvcodec::transform {
namespace {

// 1/n! with alternating signs, the Taylor coefficients of sine and cosine (docs/format.md).
constexpr double kSine[] = {0x1.6124613a86d09p-33,  -0x1.ae64567f544e4p-26, 0x1.71de3a556c734p-19,
                            -0x1.a01a01a01a01ap-13, 0x1.1111111111111p-7,   -0x1.5555555555555p-3};
constexpr double kCosine[] = {
    -0x1.93974a8c07c9dp-37, 0x1.1eed8eff8d898p-29, -0x1.27e4fb7789f5cp-22, 0x1.a01a01a01a01ap-16,
    -0x1.6c16c16c16c17p-10, 0x1.5555555555555p-5,  -0x1.0000000000000p-1};

template <size_t n>
double polynomial(const double (&coefficients)[n], double z) {
  double p = coefficients[0];
  for (size_t i = 1; i < n; ++i) p = coefficients[i] + z * p;
  return p;
}

}  // namespace

Turn turn_of_phase(uint64_t phase) {
  const uint64_t quarter = (phase + (uint64_t{1} << 61)) >> 62;
  const auto rest = static_cast<int64_t>(phase - (quarter << 62));
  const double x = static_cast<double>(rest >> 8) * 0x1.921fb54442d18p-54;
  const double z = x * x;
  const auto sine = static_cast<float>(x + (x * z) * polynomial(kSine, z));
  const auto cosine = static_cast<float>(1 + z * polynomial(kCosine, z));
  switch (quarter) {
    case 0: return {cosine, sine};
    case 1: return {-sine, cosine};
    case 2: return {-cosine, -sine};
    default: return {sine, -cosine};
  }
}

RotationTable::RotationTable(const Rope& rope, uint32_t first_token, uint32_t tokens)
    : interleaved_(rope.style == Rope::Style::interleaved),
      pairs_(rope.style == Rope::Style::none ? 0 : rope.rotary_dims / 2),
      tokens_(tokens),
      cosines_(size_t{pairs_} * tokens),
      sines_(size_t{pairs_} * tokens) {
  for (uint32_t pair = 0; pair < pairs_; ++pair) {
    for (uint32_t t = 0; t < tokens; ++t) {
      const Turn turn = turn_of_phase((uint64_t{first_token} + t) * rope.phase_steps[pair]);
      cosines_[size_t{pair} * tokens + t] = turn.cosine;
      sines_[size_t{pair} * tokens + t] = turn.sine;
    }
  }
}

void rotate_pairs(float* x, float* y, const float* cosines, const float* sines, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float x0 = x[i], y0 = y[i];
    x[i] = x0 * cosines[i] - y0 * sines[i];
    y[i] = x0 * sines[i] + y0 * cosines[i];
  }
}

void unrotate_pairs(float* x, float* y, const float* cosines, const float* sines, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float x0 = x[i], y0 = y[i];
    x[i] = x0 * cosines[i] + y0 * sines[i];
    y[i] = y0 * cosines[i] - x0 * sines[i];
  }
}

}  // namespace kvcodec::transform
