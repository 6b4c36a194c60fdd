// SPDX-License-Identifier: Apache-2.0
#include "transform/float_convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace kvcodec::transform {
namespace {

float to_float(DType dtype, uint32_t bits) {
  float x = 0;
  to_floats(dtype, reinterpret_cast<const std::byte*>(&bits), 1, &x);
  return x;
}
uint32_t from_float(DType dtype, float x) {
  uint32_t bits = 0;
  from_floats(dtype, &x, 1, reinterpret_cast<std::byte*>(&bits));
  return bits;
}

// What the bits of an f16 mean, from its definition.
double f16_value(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const double mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

TEST(FloatConvert, EveryF16HasItsValueAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = to_float(DType::f16, bits);
    if ((bits & 0x7c00) == 0x7c00) {
      EXPECT_EQ(std::isnan(x), (bits & 0x3ff) != 0) << bits;
      EXPECT_EQ(std::isinf(x), (bits & 0x3ff) == 0) << bits;
      continue;
    }
    ASSERT_EQ(double{x}, f16_value(bits)) << bits;
    ASSERT_EQ(std::signbit(x), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(from_float(DType::f16, x), bits);
  }
}

TEST(FloatConvert, EveryFiniteBf16ComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = to_float(DType::bf16, bits);
    ASSERT_EQ(std::bit_cast<uint32_t>(x), bits << 16);
    if (std::isfinite(x)) {
      ASSERT_EQ(from_float(DType::bf16, x), bits);
    }
  }
}

// The nearest of the two f16 around x, the even one where both are as near.
uint32_t nearest_f16(double magnitude) {
  uint32_t low = 0, high = 0x7bff;
  while (low < high) {  // the largest not above
    const uint32_t middle = (low + high + 1) / 2;
    if (f16_value(middle) <= magnitude)
      low = middle;
    else
      high = middle - 1;
  }
  if (low == 0x7bff) return low;
  const double below = magnitude - f16_value(low), above = f16_value(low + 1) - magnitude;
  if (below == above) return low % 2 == 0 ? low : low + 1;
  return below < above ? low : low + 1;
}

TEST(FloatConvert, F16RoundsToNearestEven) {
  std::mt19937 random(1);
  std::vector<float> cases = {0x1p-25f,     std::nextafter(0x1p-25f, 1.0f),
                              0x1.8p-24f,   0x1.ffcp-15f,
                              0x1.ffdp-15f, 65519.99f,
                              2049,         2051,
                              1e-30f};
  for (int i = 0; i < 20000; ++i) {
    const auto exponent = static_cast<uint32_t>(100 + random() % 43);  // 2^-27 to 2^15
    const auto mantissa = static_cast<uint32_t>(random()) & 0x7fffff;
    cases.push_back(std::bit_cast<float>(exponent << 23 | mantissa));
    cases.push_back(std::bit_cast<float>(exponent << 23 | (mantissa & 0x7ff000)));  // ties
  }
  for (float x : cases) {
    ASSERT_EQ(from_float(DType::f16, x), nearest_f16(x)) << x;
    ASSERT_EQ(from_float(DType::f16, -x), nearest_f16(x) | 0x8000) << x;
  }
}

TEST(FloatConvert, Bf16RoundsToNearestEven) {
  const struct {
    uint32_t from, to;
  } cases[] = {{0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
               {0x3f817fff, 0x3f81}, {0x3fffffff, 0x4000}, {0x00008000, 0x0000},
               {0x00018000, 0x0002}, {0xbf818000, 0xbf82}};
  for (const auto& [from, to] : cases)
    EXPECT_EQ(from_float(DType::bf16, std::bit_cast<float>(from)), to) << std::hex << from;
}

TEST(FloatConvert, NeverMakesSpecialNumbers) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(from_float(DType::f16, 65520), 0x7bffu);
  EXPECT_EQ(from_float(DType::f16, -largest), 0xfbffu);
  EXPECT_EQ(from_float(DType::f16, infinity), 0x7bffu);
  EXPECT_EQ(from_float(DType::bf16, largest), 0x7f7fu);
  EXPECT_EQ(from_float(DType::bf16, -infinity), 0xff7fu);
  EXPECT_EQ(from_float(DType::f32, infinity), std::bit_cast<uint32_t>(largest));
  EXPECT_EQ(from_float(DType::f32, -infinity), std::bit_cast<uint32_t>(-largest));
  EXPECT_EQ(from_float(DType::f32, -0.0f), 0x80000000u);
  for (DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    EXPECT_EQ(from_float(dtype, nan), 0u);
    EXPECT_EQ(from_float(dtype, -nan), 0u);
  }
}

TEST(FloatConvert, LongUnalignedArraysAreAsSingleElements) {
  std::vector<std::byte> bytes(2 * 67 + 1), back(bytes.size());
  std::mt19937 random(2);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xbf);  // finite
  std::vector<float> floats(67);
  for (DType dtype : {DType::f16, DType::bf16}) {
    to_floats(dtype, bytes.data() + 1, floats.size(), floats.data());
    from_floats(dtype, floats.data(), floats.size(), back.data() + 1);
    for (size_t i = 0; i < floats.size(); ++i) {
      const uint32_t bits = std::to_integer<uint32_t>(bytes[2 * i + 1]) |
                            std::to_integer<uint32_t>(bytes[2 * i + 2]) << 8;
      ASSERT_EQ(floats[i], to_float(dtype, bits));
      ASSERT_EQ(bytes[2 * i + 1], back[2 * i + 1]);
      ASSERT_EQ(bytes[2 * i + 2], back[2 * i + 2]);
    }
  }
}

}  // namespace
}  // namespace kvcodec::transform
