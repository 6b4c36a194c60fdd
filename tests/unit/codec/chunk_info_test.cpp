// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "unit/codec/codec_cases.h"

namespace kvcodec {
namespace {

using namespace testing_codec;

TEST(Tier, NamesGoThereAndBack) {
  for (Tier tier : {Tier::exact, Tier::int8, Tier::high, Tier::balanced, Tier::small})
    EXPECT_EQ(*tier_from_name(tier_name(tier)), tier);
  EXPECT_STREQ(tier_name(Tier::exact), "exact");
  EXPECT_STREQ(tier_name(Tier::int8), "int8");
  const auto unknown = tier_from_name("best");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(unknown.error().message.find("best"), std::string::npos);
}

TEST(ChunkInfo, SaysWhatTheChunkIs) {
  const KvShape shape{3, 2, 64, 32, DType::bf16};
  const Cache cache = random_values(shape, 40, 1);
  EncodeOptions options;
  options.tier = Tier::int8;
  options.rope = *make_rope(Rope::Style::neox, 32, 10000.0);
  options.max_picture_height = 256;
  const auto object = *encode_chunk(cache.source(), {8, 32}, some_id(2), options);
  const ChunkInfo info = *read_chunk_info(object);
  EXPECT_EQ(info.format_version, 1);
  EXPECT_EQ(info.tier, Tier::int8);
  EXPECT_EQ(info.id, some_id(2));
  EXPECT_EQ(info.shape, shape);
  EXPECT_EQ(info.rope, options.rope);
  EXPECT_EQ(info.tokens, 32u);
  EXPECT_EQ(info.sink_tokens, 2u);
  EXPECT_EQ(info.object_bytes, object.size());
  EXPECT_EQ(info.values(), 32u * 3 * 2 * (64 + 32));
  EXPECT_DOUBLE_EQ(info.bits_per_value(), 8.0 * static_cast<double>(object.size()) / (32 * 576));
  ASSERT_EQ(info.pictures.size(), 3u);  // K: two layers, one layer; V: all three
  EXPECT_EQ(info.pictures[1].kind, KvKind::key);
  EXPECT_EQ(info.pictures[1].first_row, 256u);
  EXPECT_EQ(info.pictures[1].rows, 128u);
  EXPECT_EQ(info.pictures[1].height, 144u);
  EXPECT_EQ(info.pictures[2].rows, 192u);
  EXPECT_EQ(info.pictures[0].offset, info.header_bytes);
  EXPECT_EQ(info.pictures[2].offset + info.pictures[2].bytes, object.size());
}

TEST(ChunkInfo, NeedsTheHeaderOnly) {
  const Cache cache = random_values({1, 1, 16, 16, DType::f16}, 16, 2);
  const auto object = *encode_chunk(cache.source(), {0, 16}, some_id(), {});
  const uint64_t header = read_chunk_info(object)->header_bytes;
  EXPECT_TRUE(read_chunk_info(std::span(object).first(header)).ok());
  const auto cut = read_chunk_info(std::span(object).first(header - 1));
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().code, ErrorCode::corrupt);
  EXPECT_NE(cut.error().message.find(std::to_string(header)), std::string::npos)
      << cut.error().message;
}

}  // namespace
}  // namespace kvcodec
