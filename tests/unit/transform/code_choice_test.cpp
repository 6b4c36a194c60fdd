// SPDX-License-Identifier: Apache-2.0
#include "transform/code_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "transform/component_quantise.h"
#include "transform/int8_quantise.h"

namespace kvcodec::transform {
namespace {

// Numbers as components have them: normal, each row with a spread of its own.
struct Rows {
  static constexpr size_t kTokens = 256;
  std::vector<float> y;
  std::vector<uint8_t> samples;

  explicit Rows(double spread, float dead_zone = 0.5F) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    std::vector<int32_t> codes(kTokens);
    for (size_t row = 0; row < kRateRows; ++row) {
      for (size_t t = 0; t < kTokens; ++t)
        y.push_back(normal(random) * static_cast<float>(spread * std::pow(0.98, row)));
      quantise_components(&y[row * kTokens], kTokens, 1, dead_zone, codes.data());
      for (int32_t code : codes) samples.push_back(static_cast<uint8_t>(code + kZeroSample));
    }
  }
  void lower() {
    RateModel rates;
    rates.add(samples.data(), samples.size());
    lower_codes(y.data(), y.size(), 1, rates.bits(), samples.data());
  }
  // Mean square error with centroids, in squares of a step.
  double error() const {
    std::vector<int32_t> codes;
    for (uint8_t sample : samples) codes.push_back(int{sample} - int{kZeroSample});
    CentroidSums sums;
    sums.add(y.data(), codes.data(), y.size(), 1);
    const auto delta = sums.deltas();
    const float pair[2] = {delta[0], delta[1]};
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i)
      sum += std::pow(y[i] - component_of_code(codes[i], 1, pair), 2);
    return sum / static_cast<double>(y.size());
  }
  // Order-0 entropy of the codes, bits a value.
  double entropy() const {
    std::array<double, 256> count{};
    for (uint8_t sample : samples) ++count[sample];
    double bits = 0;
    for (double n : count)
      if (n > 0) bits -= n * std::log2(n / static_cast<double>(samples.size()));
    return bits / static_cast<double>(samples.size());
  }
};

TEST(RateModel, IsTheEntropyOfWhatItSaw) {
  const Rows rows(1.5);
  RateModel rates;
  rates.add(rows.samples.data(), rows.samples.size());
  const auto bits = rates.bits();
  double sum = 0;
  for (uint8_t sample : rows.samples)
    sum += bits[static_cast<size_t>(std::abs(int{sample} - int{kZeroSample}))];
  EXPECT_NEAR(sum / static_cast<double>(rows.samples.size()), rows.entropy(), 0.01);
}

TEST(RateModel, WhatWasNeverSeenIsDearAndNotImpossible) {
  const RateModel nothing;
  for (float bits : nothing.bits()) EXPECT_TRUE(std::isfinite(bits));
  RateModel zeros;
  const std::vector<uint8_t> samples(8192, kZeroSample);
  zeros.add(samples.data(), samples.size());
  EXPECT_LT(zeros.bits()[0], 0.01);
  EXPECT_GT(zeros.bits()[1], 10);
  EXPECT_LT(zeros.bits()[15], 20);
}

// At equal entropy the error is less than any dead zone leaves, at coarse and fine steps.
TEST(CodeChoice, BeatsEveryDeadZone) {
  for (const double spread : {0.35, 0.6, 1.0}) {
    Rows chosen(spread);
    chosen.lower();
    // The dead zone whose entropy at this step is that of the choice.
    double least = 1e9;
    for (float dead_zone = 0.5F; dead_zone < 0.95F; dead_zone += 0.01F) {
      const Rows plain(spread, dead_zone);
      if (plain.entropy() <= chosen.entropy()) least = std::min(least, plain.error());
    }
    EXPECT_LT(chosen.error(), least * 1.001) << spread;
  }
}

TEST(CodeChoice, CostsNeverRiseAndSignsStay) {
  for (const double spread : {0.1, 0.5, 2.0, 8.0}) {
    const Rows before(spread);
    Rows after = before;
    after.lower();
    RateModel rates;
    rates.add(before.samples.data(), before.samples.size());
    const auto bits = rates.bits();
    for (size_t i = 0; i < before.y.size(); ++i) {
      const int a = int{before.samples[i]} - 128, b = int{after.samples[i]} - 128;
      EXPECT_LE(std::abs(b), std::abs(a));
      EXPECT_GE(a * b, 0);
      if (std::abs(a) >= 15) {
        EXPECT_EQ(a, b);
        continue;
      }
      const auto cost = [&](int code) {
        const auto size = static_cast<size_t>(std::abs(code));
        return std::pow(std::abs(before.y[i]) - double(size), 2) + double{kBitWorth} * bits[size];
      };
      EXPECT_LE(cost(b), cost(a) + 1e-6);
    }
    EXPECT_LE(after.entropy(), before.entropy() + 1e-9);
  }
}

}  // namespace
}  // namespace kvcodec::transform
