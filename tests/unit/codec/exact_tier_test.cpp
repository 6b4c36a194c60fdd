// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "codec/chunk_encoder.h"
#include "unit/codec/codec_cases.h"
#include "unit/layout/kv_geometries.h"

namespace kvcodec {
namespace {

using namespace testing_codec;

EncodeOptions exact_options(int threads = 2) {
  EncodeOptions options;
  options.tier = Tier::exact;
  options.threads = threads;
  return options;
}

// Encodes `range`, restores it into an empty cache of the same geometry, and compares every element
// of the range bit for bit, and that nothing else was written.
std::vector<std::byte> expect_exact(const Cache& cache, TokenRange range,
                                    const EncodeOptions& options,
                                    const EncoderTuning& tuning = {}) {
  auto object = encode_chunk_tuned(cache.source(), range, some_id(range.first), options, tuning);
  EXPECT_TRUE(object.ok()) << object.error().message;
  if (!object.ok()) return {};
  const ChunkId id = some_id(range.first);
  DecodeOptions decode;
  decode.expected = &id;
  decode.threads = options.threads;
  Cache restored = empty_cache(cache.geometry, cache.memory.size());
  Cache expected = restored;
  const Status status = decode_chunk(*object, restored.target(), range.first, decode);
  EXPECT_TRUE(status.ok()) << status.error().message;
  const size_t element = dtype_bytes(cache.geometry.shape.dtype);
  for_each_element(cache.geometry.shape, range, [&](auto... place) {
    const size_t at = cache.geometry.element_offset(place...);
    std::memcpy(expected.memory.data() + at, cache.memory.data() + at, element);
  });
  EXPECT_TRUE(restored.memory == expected.memory);
  EXPECT_TRUE(verify_chunk(*object, decode).ok());
  return *object;
}

TEST(Exact, EveryBf16BitPattern) {
  Cache cache = empty_cache(KvShape{2, 2, 64, 64, DType::bf16}, 256);
  for (size_t i = 0; i < cache.memory.size() / 2; ++i) {
    const auto bits = static_cast<uint16_t>(i * 40503u);  // odd: all patterns, scattered
    std::memcpy(cache.memory.data() + 2 * i, &bits, 2);
  }
  expect_exact(cache, {0, 256}, exact_options());
}

TEST(Exact, EveryF16BitPatternAtEverySplit) {
  Cache cache = empty_cache(KvShape{1, 2, 64, 64, DType::f16}, 256);
  for (size_t i = 0; i < cache.memory.size() / 2; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(cache.memory.data() + 2 * i, &bits, 2);
  }
  for (uint8_t k = 0; k <= 3; ++k) {
    EncoderTuning tuning;
    tuning.symbol_mantissa_bits[0] = k;
    tuning.symbol_mantissa_bits[1] = static_cast<uint8_t>(3 - k);
    expect_exact(cache, {0, 256}, exact_options(), tuning);
  }
}

TEST(Exact, F32SpecialNumbers) {
  Cache cache = random_bits({2, 1, 32, 16, DType::f32}, 64, 1);
  const uint32_t special[] = {0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
                              0xffc12345, 0x00000001, 0x807fffff, 0x7f7fffff, 0x00800000};
  for (size_t i = 0; i < std::size(special); ++i)
    std::memcpy(cache.memory.data() + 52 * i, &special[i], 4);
  expect_exact(cache, {0, 64}, exact_options());
}

struct ShapeCase {
  KvShape shape;
  uint32_t tokens;
  uint32_t max_picture_height = 2048;
};

TEST(Exact, EveryShape) {
  const ShapeCase cases[] = {
      {{4, 2, 64, 64, DType::f16}, 256},         // grouped queries
      {{2, 8, 32, 32, DType::bf16}, 100},        // one head a query head
      {{3, 2, 48, 16, DType::f16}, 33},          // keys and values differ
      {{3, 1, 72, 0, DType::bf16}, 40},          // no values
      {{1, 1, 1, 1, DType::f16}, 1},             // one number each
      {{1, 1, 64, 64, DType::f32}, 1},           // one token
      {{2, 2, 16, 16, DType::f16}, 7},           // less than a byte of packed bits
      {{2, 1, 16, 16, DType::f16}, 1000},        // a wide picture
      {{2, 5, 64, 33, DType::f16}, 19, 144},     // several pictures a layer, for keys only
      {{5, 1, 64, 144, DType::bf16}, 150, 144},  // two layers a group, and a whole picture
      {{3, 3, 64, 64, DType::f16}, 8, 8192},     // all in one group
  };
  for (const ShapeCase& c : cases) {
    SCOPED_TRACE(fmt_shape(c.shape, c.tokens));
    EncodeOptions options = exact_options();
    options.max_picture_height = c.max_picture_height;
    expect_exact(random_values(c.shape, c.tokens, 2), {0, c.tokens}, options);
    expect_exact(random_bits(c.shape, c.tokens, 3), {0, c.tokens}, options);
  }
}

TEST(Exact, RealCacheShrinks) {
  const Cache cache = real_cache();
  const auto object = expect_exact(cache, {0, 64}, exact_options());
  const ChunkInfo info = *read_chunk_info(object);
  // Pictures of 64 tokens are small; at 256 it is 13.8 bits (docs/benchmarks.md).
  EXPECT_LT(info.bits_per_value(), 14.4);
  for (const PictureInfo& picture : info.pictures)
    EXPECT_EQ(picture.coding, picture.plane == 0 ? "hevc" : "raw");
}

TEST(Exact, RandomBitsFallBackToRaw) {
  const Cache cache = random_bits({1, 2, 64, 64, DType::bf16}, 256, 4);
  const auto object = expect_exact(cache, {0, 256}, exact_options());
  const ChunkInfo info = *read_chunk_info(object);
  for (const PictureInfo& picture : info.pictures) EXPECT_EQ(picture.coding, "raw");
  EXPECT_EQ(info.object_bytes, cache.memory.size() + info.header_bytes);
}

TEST(Exact, ConstantCacheIsTiny) {
  Cache cache = empty_cache(KvShape{2, 2, 64, 64, DType::f32}, 256);
  const auto object = expect_exact(cache, {0, 256}, exact_options());
  EXPECT_LT(object.size(), cache.memory.size() * 24 / 32 + 4000);  // the low bits stay raw
}

TEST(Exact, AnyPartOfALongerCache) {
  const Cache cache = random_values({2, 2, 16, 16, DType::f16}, 300, 5);
  expect_exact(cache, {0, 300}, exact_options());
  expect_exact(cache, {17, 256}, exact_options());
  expect_exact(cache, {299, 1}, exact_options());
}

TEST(Exact, SameBytesFromEveryGeometryAndIntoEveryGeometry) {
  for (const testing_kv::NamedGeometry& named : testing_kv::many_geometries(40)) {
    SCOPED_TRACE(named.name);
    const Cache plain = random_values(named.geometry.shape, 40, 6);
    Cache engine = empty_cache(named.geometry, named.bytes);
    copy_elements(plain, engine);
    const auto object = expect_exact(engine, {3, 35}, exact_options());
    EXPECT_TRUE(object == expect_exact(plain, {3, 35}, exact_options()));
    // Restored elsewhere: other tokens of another layout.
    Cache other = empty_cache(named.geometry.shape, 50);
    ASSERT_TRUE(decode_chunk(object, other.target(), 15).ok());
    for_each_element(named.geometry.shape, {3, 35},
                     [&](KvKind kind, uint32_t layer, uint32_t token, uint32_t head, uint32_t dim) {
                       ASSERT_EQ(other.bits(kind, layer, token + 12, head, dim),
                                 plain.bits(kind, layer, token, head, dim));
                     });
  }
}

TEST(Exact, ThreadsDoNotChangeTheBytes) {
  const Cache cache = random_values({12, 2, 64, 64, DType::f16}, 64, 7);
  EncodeOptions options = exact_options(1);
  options.max_picture_height = 256;
  const auto one = expect_exact(cache, {0, 64}, options);
  options.threads = 4;
  EXPECT_TRUE(one == expect_exact(cache, {0, 64}, options));
  options.verify = false;
  EXPECT_TRUE(one == expect_exact(cache, {0, 64}, options));
}

TEST(Exact, SplitChangesTheBytesOnly) {
  // The tuning reaches the object: otherwise the tests above would test one split four times.
  const Cache cache = real_cache();
  EncoderTuning tuning;
  tuning.symbol_mantissa_bits[0] = tuning.symbol_mantissa_bits[1] = 2;
  const auto object = expect_exact(cache, {0, 64}, exact_options(), tuning);
  EXPECT_FALSE(object == expect_exact(cache, {0, 64}, exact_options()));
}

}  // namespace
}  // namespace kvcodec
