// SPDX-License-Identifier: Apache-2.0
#include "transform/rotation.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <random>

namespace kvcodec::transform {
namespace {

TEST(TurnOfPhase, QuarterTurnsAreExactWithTheirSigns) {
  const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
  const uint32_t one = bits(1), minus_one = bits(-1), zero = 0, minus_zero = 0x80000000u;
  const uint32_t expected[4][2] = {
      {one, zero}, {minus_zero, one}, {minus_one, minus_zero}, {zero, minus_one}};
  for (uint64_t quarter = 0; quarter < 4; ++quarter) {
    const Turn turn = turn_of_phase(quarter << 62);
    EXPECT_EQ(bits(turn.cosine), expected[quarter][0]) << quarter;
    EXPECT_EQ(bits(turn.sine), expected[quarter][1]) << quarter;
  }
}

TEST(TurnOfPhase, IsTheNearestFloatOfCosineAndSine) {
  std::mt19937_64 random(3);
  int not_nearest = 0;
  for (int i = 0; i < 100000; ++i) {
    const uint64_t phase = i < 56 ? uint64_t{256} << i : random();
    const long double angle =
        std::ldexp(static_cast<long double>(phase), -63) * std::numbers::pi_v<long double>;
    const Turn turn = turn_of_phase(phase);
    not_nearest += turn.cosine != static_cast<float>(std::cos(angle));
    not_nearest += turn.sine != static_cast<float>(std::sin(angle));
    ASSERT_NEAR(turn.cosine, static_cast<double>(std::cos(angle)), 0x1p-24);
    ASSERT_NEAR(turn.sine, static_cast<double>(std::sin(angle)), 0x1p-24);
  }
  EXPECT_LE(not_nearest, 2);
}

TEST(TurnOfPhase, KeepsItsBits) {
  // Anchors of the format: a change here changes what stored objects mean.
  const struct {
    uint64_t phase;
    uint32_t cosine, sine;
  } cases[] = {{0x28be60db93910549u, 0x3f0a5140u, 0x3f576aa4u},  // 1 radian
               {0x2000000000000000u, 0x3f3504f3u, 0x3f3504f3u},  // an eighth
               {0x1fffffffffffffffu, 0x3f3504f3u, 0x3f3504f3u},
               {0xffffffffffffffffu, 0x3f800000u, 0xa4c90fdbu}};  // just below a whole turn
  for (const auto& c : cases) {
    const Turn turn = turn_of_phase(c.phase);
    EXPECT_EQ(std::bit_cast<uint32_t>(turn.cosine), c.cosine) << std::hex << c.phase;
    EXPECT_EQ(std::bit_cast<uint32_t>(turn.sine), c.sine) << std::hex << c.phase;
  }
}

TEST(RotationTable, HasTheTurnOfEveryPairAndToken) {
  Rope rope{Rope::Style::neox, 6, {uint64_t{1} << 61, 0x123456789abcdef0u, ~uint64_t{0}}};
  const RotationTable table(rope, 0xfffffff0u, 5);
  ASSERT_EQ(table.pairs(), 3u);
  for (uint32_t pair = 0; pair < 3; ++pair) {
    for (uint32_t t = 0; t < 5; ++t) {
      const Turn turn = turn_of_phase((0xfffffff0u + uint64_t{t}) * rope.phase_steps[pair]);
      EXPECT_EQ(table.cosines(pair)[t], turn.cosine);
      EXPECT_EQ(table.sines(pair)[t], turn.sine);
    }
  }
}

TEST(RotationTable, PairsDimsByStyle) {
  const Rope neox{Rope::Style::neox, 6, {1, 2, 3}};
  const Rope interleaved{Rope::Style::interleaved, 6, {1, 2, 3}};
  const RotationTable a(neox, 0, 1), b(interleaved, 0, 1), none(Rope{}, 0, 1);
  EXPECT_EQ(a.first_dim(1), 1u);
  EXPECT_EQ(a.second_dim(1), 4u);
  EXPECT_EQ(b.first_dim(1), 2u);
  EXPECT_EQ(b.second_dim(1), 3u);
  EXPECT_EQ(none.pairs(), 0u);
}

TEST(RotatePairs, IsTheDocumentedProductAndItsInverse) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  constexpr size_t n = 37;
  float x[n], y[n], c[n], s[n], x0[n], y0[n];
  for (size_t i = 0; i < n; ++i) {
    x[i] = x0[i] = normal(random);
    y[i] = y0[i] = normal(random);
    const Turn turn = turn_of_phase(uint64_t{random()} << 32);
    c[i] = turn.cosine;
    s[i] = turn.sine;
  }
  rotate_pairs(x, y, c, s, n);
  for (size_t i = 0; i < n; ++i) {
    // volatile: every product rounded by itself, whatever the test is compiled with.
    volatile float xc = x0[i] * c[i], ys = y0[i] * s[i], xs = x0[i] * s[i], yc = y0[i] * c[i];
    EXPECT_EQ(x[i], xc - ys);
    EXPECT_EQ(y[i], xs + yc);
  }
  unrotate_pairs(x, y, c, s, n);
  for (size_t i = 0; i < n; ++i) {
    EXPECT_NEAR(x[i], x0[i], 1e-6);
    EXPECT_NEAR(y[i], y0[i], 1e-6);
  }
}

}  // namespace
}  // namespace kvcodec::transform
