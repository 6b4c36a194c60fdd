// SPDX-License-Identifier: Apache-2.0
#include "transform/int8_quantise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <random>
#include <vector>

namespace kvcodec::transform {
namespace {

std::vector<float> normal_numbers(size_t n, float mean, float deviation, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> numbers(n);
  for (float& x : numbers) x = normal(random);
  return numbers;
}

TEST(Int8, VariantsGiveTheSameBits) {
  ASSERT_GE(int8_variants().size(), 2u);
  for (size_t n : {1u, 7u, 64u, 1001u}) {
    auto row = normal_numbers(n, 3, 40, static_cast<uint32_t>(n));
    row[0] = 4000000;                           // near 2^22 steps
    row[n / 2] = 0.5f + static_cast<float>(n);  // a tie
    row[n - 1] = -0.0f;
    std::vector<int32_t> first_codes;
    std::vector<uint8_t> first_samples;
    std::vector<float> first_back;
    size_t first_escapes = 0;
    for (const Int8Ops& ops : int8_variants()) {
      std::vector<int32_t> codes(n);
      std::vector<uint8_t> samples(n);
      std::vector<float> back(n);
      const size_t escapes = ops.quantise(row.data(), n, 1.0f, 3, codes.data(), samples.data());
      ops.dequantise(samples.data(), n, 0.3f, -32767, back.data());
      if (first_codes.empty())
        first_codes = codes, first_samples = samples, first_back = back, first_escapes = escapes;
      EXPECT_EQ(codes, first_codes) << ops.name;
      EXPECT_EQ(samples, first_samples) << ops.name;
      EXPECT_EQ(back, first_back) << ops.name;
      EXPECT_EQ(escapes, first_escapes) << ops.name;
    }
  }
}

TEST(Int8, CodesAreNearestAndEscapesAreZeroSamples) {
  const float row[] = {10.0f, 10.5f, 11.5f, 137.4f, 137.6f, -116.6f, -117.6f};
  const int32_t expected[] = {0, 0, 2, 127, 128, -127, -128};
  for (const Int8Ops& ops : int8_variants()) {
    int32_t codes[7];
    uint8_t samples[7];
    EXPECT_EQ(ops.quantise(row, 7, 1.0f, 10, codes, samples), 2u);
    for (int i = 0; i < 7; ++i) {
      EXPECT_EQ(codes[i], expected[i]) << ops.name << " " << i;
      EXPECT_EQ(samples[i], std::abs(expected[i]) > 127 ? 128 : expected[i] + 128);
    }
  }
}

TEST(Int8, EverySampleIsItsCodeTimesTheStep) {
  std::vector<uint8_t> samples(256);
  for (size_t i = 0; i < 256; ++i) samples[i] = static_cast<uint8_t>(i);
  const float step = 0.1f;
  for (const Int8Ops& ops : int8_variants()) {
    for (int32_t offset : {-32768, -1, 0, 32767}) {
      std::vector<float> row(256);
      ops.dequantise(samples.data(), 256, step, offset, row.data());
      for (int i = 0; i < 256; ++i) {
        const volatile float product = static_cast<float>(i - 128 + offset) * step;
        ASSERT_EQ(row[static_cast<size_t>(i)], product) << ops.name;
        ASSERT_EQ(value_of_code(i - 128, step, offset), product);
      }
    }
  }
  // The sum is exact before it is rounded to binary32.
  EXPECT_EQ(value_of_code(INT32_MAX, 1.0f, INT16_MAX), 0x1.0001p31f);
}

TEST(FitStep, IsTheSmallerOfBothRules) {
  constexpr size_t tokens = 1000;
  auto rows = normal_numbers(2 * tokens, 0, 1, 7);
  for (size_t i = tokens; i < 2 * tokens; ++i) rows[i] += 50;
  std::vector<int16_t> offsets(2);
  const float peak_rule = fit_step(rows.data(), tokens, 0, {127, 0}, offsets);
  EXPECT_NEAR(peak_rule, 3.5 / 127, 0.8 / 127);  // peak of 2000 normal numbers
  const float rms_rule = fit_step(rows.data(), tokens, 0, {0, 12}, offsets);
  EXPECT_NEAR(rms_rule, 1 / 12.0, 0.03 / 12);
  EXPECT_EQ(fit_step(rows.data(), tokens, 0, {127, 12}, offsets), std::min(peak_rule, rms_rule));
  EXPECT_NEAR(offsets[1], 50 / peak_rule, 0.1 / peak_rule);
  // One outlier makes the peak rule coarse; the rms rule then wins.
  rows[5] = 1000;
  const float step = fit_step(rows.data(), tokens, 0, {127, 12}, offsets);
  EXPECT_EQ(step, fit_step(rows.data(), tokens, 0, {0, 12}, offsets));
  EXPECT_LT(step, 1000 / 127.0 / 2);
  // As a sink it has no say.
  std::swap(rows[5], rows[0]);
  EXPECT_LT(fit_step(rows.data(), tokens, 1, {127, 12}, offsets), 0.1f);
}

TEST(FitStep, OffsetsFitWhateverTheMean) {
  std::vector<float> rows = {1000, 1000, 1000, 1000.001f, 1, 1, 1, 1};
  std::vector<int16_t> offsets(2);
  const float step = fit_step(rows.data(), 4, 0, {}, offsets);
  EXPECT_GE(step, 1000 / 32768.0f);
  EXPECT_NEAR(offsets[0] * step, 1000, step);
  EXPECT_NEAR(offsets[1] * step, 1, step);
}

TEST(FitStep, ZerosAndTinyAndHugeNumbers) {
  std::vector<int16_t> offsets(1);
  const float zeros[4] = {0, -0.0f, 0, 0};
  EXPECT_EQ(fit_step(zeros, 4, 0, {}, offsets), 1.0f);
  EXPECT_EQ(offsets[0], 0);
  EXPECT_EQ(fit_step(zeros, 4, 4, {}, offsets), 1.0f);  // sinks only
  const float tiny[4] = {FLT_TRUE_MIN, 0, 0, -FLT_TRUE_MIN};
  EXPECT_EQ(fit_step(tiny, 4, 0, {}, offsets), FLT_MIN);
  const float huge[4] = {FLT_MAX, -FLT_MAX, FLT_MAX, -FLT_MAX};
  const float step = fit_step(huge, 4, 0, {}, offsets);
  EXPECT_TRUE(std::isfinite(step));
  EXPECT_NEAR(FLT_MAX / step, 127, 0.01);
}

TEST(SpreadKey, GrowsByOneEveryHalfOctave) {
  const auto key = [](int32_t code) {
    const std::vector<int32_t> codes(10, code);
    return spread_key(codes.data(), codes.size());
  };
  EXPECT_EQ(key(0), 0);
  EXPECT_EQ(key(1), 8);
  EXPECT_EQ(key(-2), 10);
  EXPECT_EQ(key(64), 20);
  EXPECT_EQ(spread_key(nullptr, 0), 0);
  const int32_t between[2] = {2, 0};  // rms sqrt(2)
  EXPECT_EQ(spread_key(between, 2), 9);
  EXPECT_GE(key(INT32_MAX), key(1 << 20));
}

}  // namespace
}  // namespace kvcodec::transform
