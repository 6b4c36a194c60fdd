// SPDX-License-Identifier: Apache-2.0
#include "transform/exact_split.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "transform/symbol_order.h"

namespace kvcodec::transform {
namespace {

std::vector<std::byte> random_bytes(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

struct Case {
  DType dtype;
  uint32_t mantissa_bits;
};
constexpr Case kCases[] = {{DType::f16, 0}, {DType::f16, 1},  {DType::f16, 2},
                           {DType::f16, 3}, {DType::bf16, 0}, {DType::f32, 0}};

TEST(ExactSplit, VariantsGiveTheSameBytesAndInvert) {
  ASSERT_GE(split_variants().size(), 2u);
  for (const Case& c : kCases) {
    const ExactSplit how = ExactSplit::of(c.dtype, c.mantissa_bits);
    EXPECT_EQ(how.symbol_bits + how.low_bits, how.bits);
    for (size_t tokens : {1u, 7u, 8u, 9u, 63u, 64u, 65u, 256u, 1000u}) {
      // One byte off, so that nothing is aligned; one byte more, to see writes beyond the end.
      const auto elements = random_bytes(1 + tokens * how.bits / 8, static_cast<uint32_t>(tokens));
      const auto centre = static_cast<uint8_t>(17 * tokens);
      std::vector<uint8_t> first_samples;
      std::vector<std::byte> first_low;
      for (const SplitOps& ops : split_variants()) {
        std::vector<uint8_t> samples(tokens + 1, 0xaa);
        std::vector<std::byte> low(how.low_row_bytes(tokens) + 1, std::byte{0xaa});
        ops.split(how, elements.data() + 1, tokens, centre, samples.data(), low.data());
        EXPECT_EQ(samples[tokens], 0xaa);
        EXPECT_EQ(low.back(), std::byte{0xaa});
        std::vector<std::byte> back(elements.size() + 1, std::byte{0xaa});
        ops.merge(how, samples.data(), low.data(), tokens, centre, back.data() + 1);
        EXPECT_EQ(std::memcmp(back.data() + 1, elements.data() + 1, elements.size() - 1), 0)
            << ops.name << " " << dtype_name(c.dtype) << c.mantissa_bits << " " << tokens;
        EXPECT_EQ(back.back(), std::byte{0xaa});
        if (first_samples.empty()) first_samples = samples, first_low = low;
        EXPECT_EQ(samples, first_samples) << ops.name;
        EXPECT_EQ(low, first_low) << ops.name;
      }
    }
  }
}

TEST(ExactSplit, MergeIgnoresSymbolBitsBeyondTheElement) {
  // Hostile samples: every variant takes them mod 2^S.
  for (const Case& c : kCases) {
    const ExactSplit how = ExactSplit::of(c.dtype, c.mantissa_bits);
    std::vector<uint8_t> samples(256);
    for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<uint8_t>(i);
    const auto low = random_bytes(how.low_row_bytes(samples.size()), 5);
    std::vector<std::byte> first;
    for (const SplitOps& ops : split_variants()) {
      std::vector<std::byte> elements(samples.size() * how.bits / 8);
      ops.merge(how, samples.data(), low.data(), samples.size(), 200, elements.data());
      if (first.empty()) first = elements;
      EXPECT_EQ(elements, first) << ops.name;
    }
  }
}

TEST(ExactSplit, IsAsTheFormatSays) {
  // -1.5 in f16 is 1 01111 1000000000; rotated 0111 1100 0000 0001.
  const uint16_t elements[2] = {0xbe00, 0x0001};
  for (const SplitOps& ops : split_variants()) {
    uint8_t samples[2];
    std::byte low[3];
    const ExactSplit how = ExactSplit::of(DType::f16, 1);  // 6 and 10 bits
    ASSERT_EQ(how.low_row_bytes(2), 3u);
    ops.split(how, reinterpret_cast<const std::byte*>(elements), 2, 30, samples, low);
    EXPECT_EQ(samples[0], 129);  // offset 1
    EXPECT_EQ(samples[1], 149);  // offset -30, number 41 in the order
    EXPECT_EQ(low[0], std::byte{0x01});
    EXPECT_EQ(low[1], std::byte{0x02});
    EXPECT_EQ(low[2], std::byte{0b0000});
    const uint16_t more[2] = {0xbe00 | 0x180, 0x0080};  // bits 8 and 9 of the rotated: 11, 01
    ops.split(how, reinterpret_cast<const std::byte*>(more), 2, 30, samples, low);
    EXPECT_EQ(low[2], std::byte{0b0111});
  }
}

TEST(SymbolOrder, IsTheListOfTheFormat) {
  const std::pair<int, int> known[] = {{0, 128},  {1, 129},  {-1, 127}, {-2, 130}, {2, 126},
                                       {-3, 131}, {-4, 125}, {-5, 132}, {3, 124},  {-6, 133},
                                       {-7, 123}, {-8, 134}, {4, 122},  {127, 0}};
  for (const auto& [offset, sample] : known)
    EXPECT_EQ(kSymbolOrder.sample_of[static_cast<uint8_t>(offset)], sample) << offset;
  for (int offset = 0; offset < 256; ++offset) {
    EXPECT_EQ(kSymbolOrder.offset_of[kSymbolOrder.sample_of[static_cast<size_t>(offset)]], offset);
  }
}

TEST(RowKey, IsTheMedianSymbolAtFullResolution) {
  const ExactSplit how = ExactSplit::of(DType::f16, 0);
  const uint16_t elements[5] = {0x3c00, 0xbc00, 0x3c80, 0x0000, 0x7c00};
  EXPECT_EQ(row_key(how, reinterpret_cast<const std::byte*>(elements), 5), 0x3c00 << 1 >> 8);
  EXPECT_EQ(row_key(how, reinterpret_cast<const std::byte*>(elements), 1), 0x78);
  const float floats[3] = {1.0f, 2.0f, -4.0f};
  EXPECT_EQ(row_key(ExactSplit::of(DType::f32, 0), reinterpret_cast<const std::byte*>(floats), 3),
            128);
  const uint16_t brain[3] = {0x3f80, 0xbf80, 0x0000};
  EXPECT_EQ(row_key(ExactSplit::of(DType::bf16, 0), reinterpret_cast<const std::byte*>(brain), 3),
            127);
}

}  // namespace
}  // namespace kvcodec::transform
