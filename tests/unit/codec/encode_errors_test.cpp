// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "unit/codec/codec_cases.h"

namespace kvcodec {
namespace {

using namespace testing_codec;

// A request that works, for each test to break in one place.
struct Request {
  Cache cache = random_values({2, 2, 8, 8, DType::f16}, 20, 1);
  TokenRange range{0, 20};
  ChunkId id = some_id();
  EncodeOptions options;

  void expect_refused(const std::string& words) const {
    for (Tier tier : {Tier::exact, Tier::int8}) {
      EncodeOptions tried = options;
      if (options.tier == Tier::exact) tried.tier = tier;
      const auto object = encode_chunk(cache.source(), range, id, tried);
      ASSERT_FALSE(object.ok()) << words;
      EXPECT_EQ(object.error().code, ErrorCode::invalid_argument);
      EXPECT_NE(object.error().message.find(words), std::string::npos) << object.error().message;
    }
  }
};

TEST(EncodeErrors, TheRequestItselfWorks) {
  const Request r;
  EXPECT_TRUE(encode_chunk(r.cache.source(), r.range, r.id, r.options).ok());
}

TEST(EncodeErrors, TokenRange) {
  Request r;
  r.range = {0, 0};
  r.expect_refused("tokens of the chunk: expected 1 to 8192, found 0");
  r.range = {1, 20};
  r.expect_refused("end of the token range: expected 0 to 20, found 21");
  r.range = {UINT32_MAX, 2};
  r.expect_refused("end of the token range");
  r.range = {0, 8193};
  r.expect_refused("found 8193");
  r.range = {0, 20};
  r.id.first_token = UINT32_MAX - 19;
  r.expect_refused("first token");
}

TEST(EncodeErrors, Geometry) {
  Request r;
  const auto object = encode_chunk({r.cache.memory, nullptr}, r.range, r.id, r.options);
  ASSERT_FALSE(object.ok());
  EXPECT_EQ(object.error().code, ErrorCode::invalid_argument);
  r.cache.memory.pop_back();
  r.expect_refused("geometry");
}

TEST(EncodeErrors, Shape) {
  Request r;
  r.cache.geometry.shape.layers = 0;
  r.expect_refused("layers: expected 1 to 65536, found 0");
  r.cache.geometry.shape = {1, 0, 8, 8, DType::f16};
  r.expect_refused("kv_heads");
  r.cache.geometry.shape = {1, 1, 0, 8, DType::f16};
  r.expect_refused("key_dim");
  r.cache.geometry.shape = {1, 1, 8, 70000, DType::f16};
  r.expect_refused("value_dim");
  r.cache.geometry.shape = {65536, 65536, 65536, 0, DType::f16};
  r.expect_refused("layers * kv_heads * head dim");
  r.cache.geometry.shape = {2, 2, 8, 8, static_cast<DType>(4)};
  r.expect_refused("dtype");
}

TEST(EncodeErrors, Options) {
  Request r;
  for (uint32_t height : {0u, 136u, 8200u, 150u}) {
    r.options.max_picture_height = height;
    r.expect_refused("max_picture_height");
  }
  r.options = {};
  r.options.rope = {Rope::Style::neox, 10, {1, 2, 3, 4, 5}};
  r.expect_refused("rotary_dims: expected an even number from 2 to key_dim 8, found 10");
  r.options.rope = {Rope::Style::neox, 3, {1}};
  r.expect_refused("rotary_dims");
  r.options.rope = {Rope::Style::neox, 0, {}};
  r.expect_refused("rotary_dims");
  r.options.rope = {Rope::Style::neox, 8, {1, 2, 3}};
  r.expect_refused("rope phase steps: expected 4, found 3");
  r.options.rope = {static_cast<Rope::Style>(3), 8, {1, 2, 3, 4}};
  r.expect_refused("rope style");
  r.options = {};
  r.options.tier = static_cast<Tier>(9);
  r.expect_refused("tier: expected exact, int8, high, balanced or small, found 9");
}

}  // namespace
}  // namespace kvcodec
