// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace kvcodec {
namespace {

// From xxhash's own command line: `xxhsum -H3`. These values are part of the format.
TEST(Checksum64, IsXxh3) {
  const auto of_text = [](std::string_view text) {
    return checksum64(std::as_bytes(std::span(text)));
  };
  EXPECT_EQ(of_text(""), 0x2d06800538d394c2u);
  EXPECT_EQ(of_text("abc"), 0x78af5f94892f3950u);
  std::vector<std::byte> bytes(1024);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(checksum64(bytes), 0xa870f92984398d22u);
}

TEST(Checksum64, SeesEveryBitAndTheLength) {
  for (const size_t size : {1u, 16u, 100u, 300u}) {
    std::vector<std::byte> bytes(size);
    const uint64_t sum = checksum64(bytes);
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      const std::byte mask{static_cast<unsigned char>(1u << bit % 8)};
      bytes[bit / 8] ^= mask;
      EXPECT_NE(checksum64(bytes), sum) << bit;
      bytes[bit / 8] ^= mask;
    }
    EXPECT_NE(checksum64(std::span(bytes).first(size - 1)), sum);
  }
}

}  // namespace
}  // namespace kvcodec
