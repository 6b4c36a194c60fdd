// SPDX-License-Identifier: Apache-2.0
#include "hevc/bit_writer.h"

#include <gtest/gtest.h>

#include "unit/hevc/hevc_pictures.h"

namespace kvcodec::hevc {
namespace {

using Bytes = std::vector<uint8_t>;

TEST(BitWriter, FixedLengthCodesAreMostSignificantFirst) {
  BitWriter writer;
  writer.put(0b101, 3);
  writer.put(0x12345678, 32);
  writer.put_flag(true);
  writer.put(0, 4);
  EXPECT_EQ(writer.take(), (Bytes{0xa2, 0x46, 0x8a, 0xcf, 0x10}));
}

TEST(BitWriter, ExpGolombCodes) {  // H.265 Table 9-2 and 9-3
  BitWriter writer;
  for (uint32_t value : {0u, 1u, 2u, 3u, 6u, 7u}) writer.put_ue(value);
  // 1 010 011 00100 00111 0001000
  EXPECT_EQ(writer.take(), (Bytes{0b10100110, 0b01000011, 0b10001000}));
  for (int32_t value : {0, 1, -1, 2, -26}) writer.put_se(value);
  // 1 010 011 00100 00000110101
  writer.put_trailing_bits();
  EXPECT_EQ(writer.take(), (Bytes{0b10100110, 0b01000000, 0b01101011}));
}

TEST(BitWriter, TrailingBitsFillTheByteOrAddOne) {
  BitWriter writer;
  writer.put(0, 7);
  writer.put_trailing_bits();
  EXPECT_EQ(writer.take(), (Bytes{0x01}));
  writer.put(0xff, 8);
  writer.put_trailing_bits();
  EXPECT_EQ(writer.take(), (Bytes{0xff, 0x80}));
}

Bytes escaped(Bytes bytes, size_t from = 0) {
  insert_emulation_prevention(bytes, from);
  return bytes;
}

TEST(EmulationPrevention, InsertsBeforeEveryByteThatNeedsIt) {
  EXPECT_EQ(escaped({}), Bytes{});
  EXPECT_EQ(escaped({0, 0}), (Bytes{0, 0}));
  EXPECT_EQ(escaped({0, 0, 1}), (Bytes{0, 0, 3, 1}));
  EXPECT_EQ(escaped({0, 0, 3}), (Bytes{0, 0, 3, 3}));
  EXPECT_EQ(escaped({0, 0, 4}), (Bytes{0, 0, 4}));
  EXPECT_EQ(escaped({0, 0, 0, 0, 0}), (Bytes{0, 0, 3, 0, 0, 3, 0}));
  EXPECT_EQ(escaped({7, 0, 0, 2, 0, 0, 9, 0, 0, 1}), (Bytes{7, 0, 0, 3, 2, 0, 0, 9, 0, 0, 3, 1}));
  EXPECT_EQ(escaped({0, 0, 1, 0, 0, 1}, 3), (Bytes{0, 0, 1, 0, 0, 3, 1}));
}

TEST(EmulationPrevention, AgreesWithThePlainDefinition) {
  TestRandom random(1);
  for (int round = 0; round < 3000; ++round) {
    Bytes bytes(random.below(40));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.below(3) ? 0 : random.below(6));
    Bytes expected;
    int zeros = 0;
    for (uint8_t byte : bytes) {
      if (zeros >= 2 && byte <= 3) {
        expected.push_back(3);
        zeros = 0;
      }
      expected.push_back(byte);
      zeros = byte == 0 ? zeros + 1 : 0;
    }
    EXPECT_EQ(escaped(bytes), expected);
    if (!bytes.empty() && bytes.back() != 0) {
      EXPECT_EQ(find_forbidden_bytes(expected), std::nullopt);
    }
  }
}

TEST(EmulationPrevention, FindsWhatNoNalUnitMayHold) {
  using Found = std::optional<size_t>;
  EXPECT_EQ(find_forbidden_bytes(Bytes{}), std::nullopt);
  EXPECT_EQ(find_forbidden_bytes(Bytes{1, 0, 0, 1, 5}), Found{1});
  EXPECT_EQ(find_forbidden_bytes(Bytes{0, 0, 0, 5}), Found{0});
  EXPECT_EQ(find_forbidden_bytes(Bytes{9, 0, 0, 2}), Found{1});
  EXPECT_EQ(find_forbidden_bytes(Bytes{0, 0, 3, 4, 1}), Found{0});
  EXPECT_EQ(find_forbidden_bytes(Bytes{0, 0, 3, 0, 0, 1}), Found{3});
  EXPECT_EQ(find_forbidden_bytes(Bytes{0, 0, 3, 3, 0, 0, 3}), std::nullopt);
  EXPECT_EQ(find_forbidden_bytes(Bytes{5, 0, 0}), Found{2});
  EXPECT_EQ(find_forbidden_bytes(Bytes{5, 0}), Found{1});
}

}  // namespace
}  // namespace kvcodec::hevc
