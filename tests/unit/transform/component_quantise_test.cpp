// SPDX-License-Identifier: Apache-2.0
#include "transform/component_quantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace kvcodec::transform {
namespace {

TEST(ComponentQuantise, CellsAreAsTheFormatSays) {
  // step 2, dead zone 0.6: |y| below 1.2 is 0, below 3.2 is 1, below 5.2 is 2.
  const float y[] = {0, 1.1f, -1.1f, 1.3f, -1.3f, 3.1f, 3.3f, -5.1f, -5.3f, 600, -0.0f};
  const int32_t want[] = {0, 0, 0, 1, -1, 1, 2, -2, -3, 300, 0};
  int32_t codes[std::size(y)];
  EXPECT_EQ(quantise_components(y, std::size(y), 2, 0.6f, codes), 300);
  for (size_t i = 0; i < std::size(y); ++i) EXPECT_EQ(codes[i], want[i]) << y[i];
}

TEST(ComponentQuantise, NumbersThatHaveNoCodeAreFound) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 1e30f, -8.4e6f}) {
    const float y[] = {0.5f, bad, 1};
    int32_t codes[3];
    EXPECT_EQ(quantise_components(y, 3, 1, 0.5f, codes), kMaxComponentCode) << bad;
  }
}

TEST(ComponentQuantise, DeltasAreTheCentroids) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1.5f);
  std::vector<float> y(20000);
  for (float& x : y) x = normal(random);
  std::vector<int32_t> codes(y.size());
  quantise_components(y.data(), y.size(), 1, 0.6f, codes.data());
  CentroidSums sums;
  sums.add(y.data(), codes.data(), y.size(), 1);
  const auto deltas = sums.deltas();
  const auto error = [&](float d1, float d2) {
    const float delta[2] = {d1, d2};
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i)
      sum += std::pow(y[i] - component_of_code(codes[i], 1, delta), 2);
    return sum;
  };
  const double best = error(deltas[0], deltas[1]);
  for (float off : {-0.02f, 0.02f}) {
    EXPECT_LT(best, error(deltas[0] + off, deltas[1]));
    EXPECT_LT(best, error(deltas[0], deltas[1] + off));
  }
}

TEST(ComponentQuantise, NoCodesNoDeltas) {
  const float y[] = {0.1f, -0.2f};
  const int32_t codes[] = {0, 0};
  CentroidSums sums;
  sums.add(y, codes, 2, 1);
  EXPECT_EQ(sums.deltas(), (std::array<float, 2>{0, 0}));
}

TEST(ComponentQuantise, ValuesOfCodes) {
  const float delta[2] = {0.25f, -0.125f};
  EXPECT_EQ(component_of_code(0, 2, delta), 0);
  EXPECT_EQ(component_of_code(1, 2, delta), 2.5f);
  EXPECT_EQ(component_of_code(-1, 2, delta), -2.5f);
  EXPECT_EQ(component_of_code(-3, 2, delta), -5.75f);
  EXPECT_EQ(component_of_code(1000, 2, delta), 1999.75f);
}

}  // namespace
}  // namespace kvcodec::transform
