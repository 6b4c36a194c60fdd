// SPDX-License-Identifier: Apache-2.0
// A small chunk, damaged everywhere: each length it can be cut to, each bit that can be flipped.
#include <gtest/gtest.h>

#include <algorithm>

#include "golden/golden_cases.h"

namespace kvcodec {
namespace {

const std::string kFolder = KVCODEC_GOLDEN_FOLDER;

// An object and memory to restore it into, which no failure may touch.
class Damage : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    object_ = read_golden(kFolder + "/good/" + GetParam() + ".kvc");
    const Result<ChunkInfo> info = read_chunk_info(object_);
    ASSERT_TRUE(info.ok()) << info.error().message;
    header_bytes_ = info->header_bytes;
    geometry_ = KvGeometry::contiguous(info->shape, info->tokens);
    memory_.assign(geometry_.contiguous_bytes(), std::byte{0xA5});
  }

  Status decode(std::span<const std::byte> object) {
    DecodeOptions options;
    options.threads = 1;
    return decode_chunk(object, {memory_, &geometry_}, 0, options);
  }
  bool memory_is_untouched() const {
    return std::ranges::all_of(memory_, [](std::byte b) { return b == std::byte{0xA5}; });
  }
  static bool names_a_place(const std::string& message) {
    return message.find("offset") != std::string::npos ||
           message.find("truncated") != std::string::npos ||
           message.find("object size") != std::string::npos;
  }

  std::vector<std::byte> object_, memory_;
  KvGeometry geometry_;
  size_t header_bytes_ = 0;
};

TEST_P(Damage, EveryTruncationIsCorrupt) {
  for (size_t length = 0; length < object_.size(); ++length) {
    const Status status = decode(std::span(object_).first(length));
    ASSERT_FALSE(status.ok()) << length;
    ASSERT_EQ(status.error().code, ErrorCode::corrupt) << status.error().message;
    ASSERT_TRUE(names_a_place(status.error().message)) << status.error().message;
    ASSERT_TRUE(memory_is_untouched()) << length;
  }
}

TEST_P(Damage, EverySingleBitFlipIsRefused) {
  for (size_t bit = 0; bit < object_.size() * 8; ++bit) {
    const std::byte mask = std::byte{1} << (bit % 8);
    object_[bit / 8] ^= mask;
    const Status status = decode(object_);
    object_[bit / 8] ^= mask;
    ASSERT_FALSE(status.ok()) << "bit " << bit;
    // The version's other 15 bits make a version that a newer program may have written.
    const bool newer = bit / 8 >= 8 && bit / 8 < 10 && bit != 64;
    ASSERT_EQ(status.error().code, newer ? ErrorCode::unsupported : ErrorCode::corrupt)
        << "bit " << bit << ": " << status.error().message;
    ASSERT_TRUE(names_a_place(status.error().message)) << status.error().message;
    if (bit / 8 >= header_bytes_) {
      ASSERT_NE(status.error().message.find("picture"), std::string::npos)
          << status.error().message;
    }
    ASSERT_TRUE(memory_is_untouched()) << "bit " << bit;
  }
  ASSERT_TRUE(decode(object_).ok());
  EXPECT_FALSE(memory_is_untouched());
}

INSTANTIATE_TEST_SUITE_P(SmallChunks, Damage,
                         testing::Values("exact_rope_noted", "exact_one_token",
                                         "int8_f16_interleaved", "int8_no_values"),
                         [](const auto& chunk) { return std::string(chunk.param); });

}  // namespace
}  // namespace kvcodec
