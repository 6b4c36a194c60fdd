// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "format/header_fields.h"

namespace kvcodec::format {
namespace {

using Rows = std::vector<std::pair<uint32_t, uint32_t>>;

Rows groups(uint32_t layers, uint32_t channels, uint32_t max_picture_height) {
  Rows rows;
  const KvShape shape = {layers, 1, channels, 0, DType::f16};
  for (const RowGroup& g : row_groups(shape, KvKind::key, max_picture_height)) {
    rows.emplace_back(g.first_row, g.rows);
  }
  return rows;
}

TEST(PictureLayout, GroupsAreWholeLayersOrOneLayer) {
  EXPECT_EQ(groups(3, 100, 144), (Rows{{0, 100}, {100, 100}, {200, 100}}));
  EXPECT_EQ(groups(5, 72, 144), (Rows{{0, 144}, {144, 144}, {288, 72}}));
  EXPECT_EQ(groups(2, 144, 144), (Rows{{0, 144}, {144, 144}}));
  EXPECT_EQ(groups(2, 145, 144), (Rows{{0, 145}, {145, 145}}));
  EXPECT_EQ(groups(2, 1000, 144), (Rows{{0, 1000}, {1000, 1000}}));
  const KvShape no_values = {4, 2, 64, 0, DType::f16};
  EXPECT_TRUE(row_groups(no_values, KvKind::value, 144).empty());
}

Header header_of(Tier tier, KvShape shape, uint32_t tokens, uint32_t max_picture_height) {
  Header header;
  header.tier = tier;
  header.shape = shape;
  header.tokens = tokens;
  header.max_picture_height = max_picture_height;
  return header;
}

TEST(PictureLayout, ALayerOfManyChannelsIsCutIntoPieces) {
  const auto pictures =
      layout_pictures(header_of(Tier::int8, {2, 1, 300, 10, DType::f16}, 146, 144));
  ASSERT_EQ(pictures.size(), 7u);
  const Rows expected = {{0, 144}, {144, 144}, {288, 12}, {300, 144}, {444, 144}, {588, 12}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(pictures[i].kind, KvKind::key);
    EXPECT_EQ(std::pair(pictures[i].first_row, pictures[i].rows), expected[i]);
    EXPECT_EQ(pictures[i].width, 152u);
    EXPECT_EQ(pictures[i].height, 144u);
  }
  EXPECT_EQ(pictures[6].kind, KvKind::value);
  EXPECT_EQ(pictures[6].rows, 20u);
}

TEST(PictureLayout, ExactHasLowBitsAfterEachPictureOfSymbols) {
  const auto pictures =
      layout_pictures(header_of(Tier::exact, {1, 2, 150, 8, DType::f32}, 8192, 8192));
  ASSERT_EQ(pictures.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(pictures[i].kind, i < 2 ? KvKind::key : KvKind::value);
    EXPECT_EQ(pictures[i].plane, i % 2 ? Plane::low_bits : Plane::symbols);
    EXPECT_EQ(pictures[i].rows, i < 2 ? 300u : 16u);
  }
  EXPECT_EQ(pictures[0].width, 8192u);
  EXPECT_EQ(pictures[0].height, 304u);
  EXPECT_EQ(pictures[1].width, 0u);
  EXPECT_EQ(pictures[1].height, 0u);
}

TEST(PictureLayout, CountIsThatOfTheListAndRowsAreCoveredOnce) {
  for (uint32_t channels = 1; channels < 700; channels += 13) {
    for (uint32_t layers : {1u, 2u, 7u, 30u}) {
      const Header header =
          header_of(Tier::exact, {layers, 1, channels, channels / 2, DType::bf16}, 10, 152);
      const auto pictures = layout_pictures(header);
      ASSERT_EQ(count_pictures(header), pictures.size());
      uint32_t next[2] = {0, 0};
      for (const Picture& picture : pictures) {
        ASSERT_LE(picture.rows, header.max_picture_height);
        const auto kind = static_cast<size_t>(picture.kind);
        ASSERT_EQ(picture.first_row, next[kind]);
        if (picture.plane == Plane::low_bits) next[kind] += picture.rows;
      }
      EXPECT_EQ(next[0], header.rows(KvKind::key));
      EXPECT_EQ(next[1], header.rows(KvKind::value));
    }
  }
}

TEST(PictureLayout, LowBitsOfEveryTypeAndSplit) {
  EXPECT_EQ(low_bits_count(DType::bf16, 0), 8u);
  EXPECT_EQ(low_bits_count(DType::f32, 0), 24u);
  for (uint32_t k = 0; k <= 3; ++k) EXPECT_EQ(low_bits_count(DType::f16, k), 11 - k);

  Header header = header_of(Tier::exact, {1, 1, 8, 8, DType::f16}, 9, 144);
  header.symbol_mantissa_bits[0] = 0;
  header.symbol_mantissa_bits[1] = 3;
  // 11 bits: 9 bytes and 27 bits in 4; 8 bits: 9 bytes.
  EXPECT_EQ(low_bits_bytes(header, KvKind::key, 5), 5u * 13);
  EXPECT_EQ(low_bits_bytes(header, KvKind::value, 5), 5u * 9);
  header.shape.dtype = DType::f32;
  EXPECT_EQ(low_bits_bytes(header, KvKind::value, 2), 2u * 27);
}

}  // namespace
}  // namespace kvcodec::format
