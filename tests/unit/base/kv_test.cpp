// SPDX-License-Identifier: Apache-2.0
#include "kvcodec/kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace kvcodec {
namespace {

KvShape example_shape() { return {3, 2, 8, 4, DType::f16}; }

// Every element's offset, the slow way.
std::vector<size_t> all_offsets(const KvGeometry& geometry) {
  std::vector<size_t> offsets;
  for (uint32_t layer = 0; layer < geometry.shape.layers; ++layer) {
    for (const KvKind kind : kKvKinds) {
      for (uint32_t token = 0; token < geometry.tokens; ++token) {
        for (uint32_t head = 0; head < geometry.shape.kv_heads; ++head) {
          for (uint32_t dim = 0; dim < geometry.shape.head_dim(kind); ++dim) {
            offsets.push_back(geometry.element_offset(kind, layer, token, head, dim));
          }
        }
      }
    }
  }
  return offsets;
}

size_t end_of(const KvGeometry& geometry) {
  const auto offsets = all_offsets(geometry);
  return *std::max_element(offsets.begin(), offsets.end()) + dtype_bytes(geometry.shape.dtype);
}

// validate accepts memory that ends with the last element and refuses a byte less.
void expect_tight(const KvGeometry& geometry) {
  const size_t end = end_of(geometry);
  const Status fits = geometry.validate(end);
  EXPECT_TRUE(fits.ok()) << fits.error().message;
  const Status short_of = geometry.validate(end - 1);
  ASSERT_FALSE(short_of.ok());
  EXPECT_EQ(short_of.error().code, ErrorCode::invalid_argument);
}

TEST(DType, HasSizesAndNames) {
  EXPECT_EQ(dtype_bytes(DType::f16), 2u);
  EXPECT_EQ(dtype_bytes(DType::bf16), 2u);
  EXPECT_EQ(dtype_bytes(DType::f32), 4u);
  EXPECT_STREQ(dtype_name(DType::f16), "f16");
  EXPECT_STREQ(dtype_name(DType::bf16), "bf16");
  EXPECT_STREQ(dtype_name(DType::f32), "f32");
  EXPECT_STREQ(kv_kind_name(KvKind::key), "K");
  EXPECT_STREQ(kv_kind_name(KvKind::value), "V");
}

TEST(KvShape, CountsBytesWithoutOverflow) {
  EXPECT_EQ(example_shape().token_bytes(), 3u * 2 * (8 + 4) * 2);
  EXPECT_EQ((KvShape{80, 8, 128, 128, DType::f32}.token_bytes()), 80u * 8 * 256 * 4);
  EXPECT_EQ((KvShape{100'000, 1000, 10'000, 10'000, DType::f32}.token_bytes()),
            size_t{8'000'000'000'000});
}

TEST(KvGeometry, ContiguousIsTheCanonicalOrder) {
  const auto geometry = KvGeometry::contiguous(example_shape(), 5);
  const auto offsets = all_offsets(geometry);
  for (size_t i = 0; i < offsets.size(); ++i) ASSERT_EQ(offsets[i], 2 * i);
  EXPECT_EQ(geometry.contiguous_bytes(), 2 * offsets.size());
  expect_tight(geometry);
}

TEST(KvGeometry, BlocksFollowTheTable) {
  auto geometry = KvGeometry::contiguous(example_shape(), 10);
  geometry.block_tokens = 4;
  geometry.block_stride = 1000;
  const size_t row = geometry.key.token;
  EXPECT_EQ(geometry.element_offset(KvKind::key, 0, 9, 0, 0), 2 * 1000 + row);
  geometry.block_table = {7, 0, 3};
  EXPECT_EQ(geometry.element_offset(KvKind::key, 0, 0, 0, 0), 7000u);
  EXPECT_EQ(geometry.element_offset(KvKind::key, 0, 6, 0, 0), 2 * row);
  EXPECT_EQ(geometry.element_offset(KvKind::key, 0, 9, 1, 3), 3000 + row + 16 + 6);
}

TEST(KvGeometry, ValidateIsExact) {
  for (const uint32_t tokens : {1u, 3u, 4u, 5u, 8u, 10u}) {
    auto geometry = KvGeometry::contiguous(example_shape(), tokens);
    expect_tight(geometry);
    geometry.value.offset += 12345;
    expect_tight(geometry);
    geometry.block_tokens = 4;
    geometry.block_stride = 4 * geometry.key.token;
    expect_tight(geometry);
    geometry.block_stride = 100'000;
    expect_tight(geometry);
    geometry.block_table = {5, 1, 9, 1000};
    expect_tight(geometry);
    geometry.block_table = {2, 1, 0};
    expect_tight(geometry);
    geometry.block_stride = 1;
    expect_tight(geometry);
  }
}

TEST(KvGeometry, ValidateRefusesATableThatIsTooShort) {
  auto geometry = KvGeometry::contiguous(example_shape(), 10);
  geometry.block_tokens = 4;
  geometry.block_table = {0, 1};
  const Status status = geometry.validate(SIZE_MAX);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("2 entries, 10 tokens need 3"), std::string::npos);
}

TEST(KvGeometry, ValidateRefusesSumsThatWrap) {
  for (size_t KvGeometry::Strides::*stride :
       {&KvGeometry::Strides::offset, &KvGeometry::Strides::layer, &KvGeometry::Strides::token,
        &KvGeometry::Strides::head, &KvGeometry::Strides::dim}) {
    for (const size_t huge : {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX - 100}) {
      auto geometry = KvGeometry::contiguous(example_shape(), 5);
      geometry.value.*stride = huge;
      EXPECT_FALSE(geometry.validate(1 << 20).ok());
    }
  }
  auto geometry = KvGeometry::contiguous(example_shape(), 5);
  geometry.block_tokens = 1;
  geometry.block_stride = SIZE_MAX / 2 + 1;
  EXPECT_FALSE(geometry.validate(1 << 20).ok());
}

// 65536 heads of 65536 elements: channels() is 0 in 32 bits.
TEST(KvGeometry, ValidateRefusesAShapeThatWraps) {
  const auto geometry = KvGeometry::contiguous({1, 65536, 65536, 65536, DType::f16}, 1);
  EXPECT_FALSE(geometry.validate(1000).ok());
}

TEST(KvGeometry, ValidateAcceptsWhatHasNoElements) {
  EXPECT_TRUE(KvGeometry::contiguous(example_shape(), 0).validate(0).ok());
  EXPECT_TRUE(KvGeometry::contiguous({0, 2, 8, 8, DType::f16}, 5).validate(0).ok());
  auto only_keys = KvGeometry::contiguous({3, 1, 8, 0, DType::bf16}, 5);
  expect_tight(only_keys);
  only_keys.value.offset = SIZE_MAX;
  expect_tight(only_keys);
}

double turns_of(uint64_t step) {
  return std::ldexp(static_cast<double>(static_cast<int64_t>(step)), -64);
}

TEST(MakeRope, StepsAreTheFrequencies) {
  const auto rope = make_rope(Rope::Style::neox, 64, 10000);
  ASSERT_TRUE(rope.ok());
  EXPECT_EQ(rope->style, Rope::Style::neox);
  EXPECT_EQ(rope->rotary_dims, 64u);
  ASSERT_EQ(rope->phase_steps.size(), 32u);
  for (size_t i = 0; i < 32; ++i) {
    const double radians = std::pow(10000, -2.0 * static_cast<double>(i) / 64);
    EXPECT_NEAR(turns_of(rope->phase_steps[i]) * 2 * M_PI, radians, radians * 1e-12) << i;
  }
}

TEST(MakeRope, TakesFrequenciesOfBothSigns) {
  const double radians[] = {0.0, 1.0, -1.0, 6.28, -6.28, 1e-9};
  const auto rope = make_rope(Rope::Style::interleaved, radians);
  ASSERT_TRUE(rope.ok());
  EXPECT_EQ(rope->rotary_dims, 12u);
  EXPECT_EQ(rope->phase_steps[0], 0u);
  EXPECT_EQ(rope->phase_steps[1] + rope->phase_steps[2], 0u) << "they undo each other";
  EXPECT_EQ(rope->phase_steps[3] + rope->phase_steps[4], 0u);
  EXPECT_NEAR(std::ldexp(static_cast<double>(rope->phase_steps[3]), -64) * 2 * M_PI, 6.28, 1e-12);
  EXPECT_NEAR(turns_of(rope->phase_steps[5]) * 2 * M_PI, 1e-9, 1e-18);
}

TEST(MakeRope, RefusesWhatIsNoFrequency) {
  for (const double bad : {2 * M_PI, -7.0, 1e300, std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    const double radians[] = {1.0, bad};
    const auto rope = make_rope(Rope::Style::neox, radians);
    ASSERT_FALSE(rope.ok()) << bad;
    EXPECT_EQ(rope.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(rope.error().message.find("frequency 1"), std::string::npos);
  }
  EXPECT_FALSE(make_rope(Rope::Style::neox, 63, 10000).ok());
  EXPECT_FALSE(make_rope(Rope::Style::neox, 64, 0.5).ok());
  EXPECT_FALSE(make_rope(Rope::Style::neox, 64, std::nan("")).ok());
}

TEST(MakeRope, NoneHasNoSteps) {
  const auto rope = make_rope(Rope::Style::none, 64, 10000);
  ASSERT_TRUE(rope.ok());
  EXPECT_EQ(*rope, Rope{});
}

}  // namespace
}  // namespace kvcodec
