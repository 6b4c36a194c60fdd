// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <gtest/gtest.h>

#include <limits>

namespace kvcodec {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(ByteWriter, WritesLittleEndian) {
  ByteWriter writer;
  writer.put(uint8_t{0x01});
  writer.put(uint16_t{0x0302});
  writer.put(uint32_t{0x07060504});
  writer.put(uint64_t{0x0f0e0d0c0b0a0908});
  writer.put(int32_t{-2});
  writer.put(1.0f);
  EXPECT_EQ(writer.bytes(), bytes_of({1,  2,  3,  4,    5,    6,    7,    8, 9, 10,   11,  12,
                                      13, 14, 15, 0xfe, 0xff, 0xff, 0xff, 0, 0, 0x80, 0x3f}));
  EXPECT_EQ(writer.size(), 23u);
}

TEST(ByteWriter, AppendsAndPatches) {
  ByteWriter writer;
  writer.put_bytes(bytes_of({1, 2, 3, 4, 5}));
  writer.put_bytes({});
  writer.patch(1, uint16_t{0xbbaa});
  EXPECT_EQ(writer.bytes(), bytes_of({1, 0xaa, 0xbb, 4, 5}));
}

TEST(ByteReader, ReadsWhatWasWritten) {
  ByteWriter writer;
  writer.put(uint16_t{7});
  writer.put(std::numeric_limits<int64_t>::min());
  writer.put_bytes(bytes_of({9, 8}));
  writer.put(2.5);
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.get<uint16_t>(), 7);
  EXPECT_EQ(reader.offset(), 2u);
  EXPECT_EQ(reader.get<int64_t>(), std::numeric_limits<int64_t>::min());
  const auto two = reader.get_bytes(2);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0], std::byte{9});
  EXPECT_EQ(two.data(), writer.bytes().data() + 10) << "a view, not a copy";
  EXPECT_EQ(reader.remaining(), 8u);
  EXPECT_EQ(reader.get<double>(), 2.5);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(ByteReader, TheEndIsNoFailureAndBeyondItIs) {
  const auto bytes = bytes_of({1, 2, 3});
  ByteReader reader(bytes);
  EXPECT_EQ(reader.get_bytes(3).size(), 3u);
  EXPECT_EQ(reader.get_bytes(0).size(), 0u);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.get<uint8_t>(), 0);
  EXPECT_FALSE(reader.ok());
}

TEST(ByteReader, FailureLasts) {
  const auto bytes = bytes_of({1, 2, 3});
  ByteReader reader(bytes);
  EXPECT_EQ(reader.get<uint8_t>(), 1);
  EXPECT_EQ(reader.get<uint32_t>(), 0u) << "only two bytes are left";
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.offset(), 1u) << "where it failed";
  EXPECT_EQ(reader.get<uint8_t>(), 0) << "though there are bytes";
  EXPECT_TRUE(reader.get_bytes(1).empty());
  EXPECT_FALSE(reader.ok());
}

TEST(ByteReader, RefusesLengthsThatWouldWrap) {
  const auto bytes = bytes_of({1, 2, 3});
  for (const size_t n : {SIZE_MAX, SIZE_MAX - 1, size_t{4}}) {
    ByteReader reader(bytes);
    reader.get<uint8_t>();
    EXPECT_TRUE(reader.get_bytes(n).empty());
    EXPECT_FALSE(reader.ok());
    EXPECT_EQ(reader.remaining(), 2u);
  }
}

TEST(ByteReader, ReadsNothingFromNothing) {
  ByteReader reader({});
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.get<uint64_t>(), 0u);
  EXPECT_FALSE(reader.ok());
}

TEST(LoadLe, NeedsNoAlignment) {
  const auto bytes = bytes_of({0, 0x78, 0x56, 0x34, 0x12, 0});
  EXPECT_EQ(load_le<uint32_t>(bytes.data() + 1), 0x12345678u);
}

}  // namespace
}  // namespace kvcodec
