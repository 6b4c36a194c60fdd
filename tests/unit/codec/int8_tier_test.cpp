// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "codec/chunk_decoder.h"
#include "codec/chunk_encoder.h"
#include "format/header.h"
#include "transform/float_convert.h"
#include "unit/codec/codec_cases.h"
#include "unit/layout/kv_geometries.h"

namespace kvcodec {
namespace {

using namespace testing_codec;

EncodeOptions int8_options(const Rope& rope = {}, uint32_t sinks = 0) {
  EncodeOptions options;
  options.tier = Tier::int8;
  options.rope = rope;
  options.sink_tokens = sinks;
  options.threads = 2;
  return options;
}

struct Coded {
  std::vector<std::byte> object;
  format::Header header;
  Cache restored;
};

Coded code(const Cache& cache, TokenRange range, const EncodeOptions& options,
           uint32_t first_token) {
  Coded coded;
  auto object = encode_chunk(cache.source(), range, some_id(first_token), options);
  EXPECT_TRUE(object.ok()) << object.error().message;
  if (!object.ok()) return coded;
  coded.object = *std::move(object);
  coded.header = *format::read_header(coded.object, {});
  coded.restored = empty_cache(cache.geometry, cache.memory.size());
  const Status status = decode_chunk(coded.object, coded.restored.target(), range.first);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return coded;
}

// The element as it was before the rotation, in binary64 and from the definition of Rope alone.
double unrotated(const Cache& cache, const Rope& rope, KvKind kind, uint32_t layer, uint32_t token,
                 uint32_t head, uint32_t dim, uint32_t position) {
  const double x = cache.value(kind, layer, token, head, dim);
  if (kind != KvKind::key || rope.style == Rope::Style::none || dim >= rope.rotary_dims) return x;
  const uint32_t half = rope.rotary_dims / 2;
  const bool interleaved = rope.style == Rope::Style::interleaved;
  const uint32_t pair = interleaved ? dim / 2 : dim % half;
  const bool second = interleaved ? dim % 2 == 1 : dim >= half;
  const uint32_t mate = interleaved ? dim ^ 1 : second ? dim - half : dim + half;
  const double y = cache.value(kind, layer, token, head, mate);
  const double angle =
      std::ldexp(static_cast<double>(position * rope.phase_steps[pair]), -63) * std::numbers::pi;
  return second ? x * std::cos(angle) - y * std::sin(angle)
                : x * std::cos(angle) + y * std::sin(angle);
}

// Every element is within half a step of what it was, un-rotated, and roundings; sinks exactly.
void expect_close(const Cache& cache, TokenRange range, const EncodeOptions& options,
                  uint32_t first_token) {
  const Coded coded = code(cache, range, options, first_token);
  const DType dtype = cache.geometry.shape.dtype;
  const double half_unit = dtype == DType::f16 ? 0x1p-11 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-20;
  double peak = 0;
  for_each_element(cache.geometry.shape, range,
                   [&](auto... place) { peak = std::max(peak, std::abs(cache.value(place...))); });
  for_each_element(
      cache.geometry.shape, range,
      [&](KvKind kind, uint32_t layer, uint32_t token, uint32_t head, uint32_t dim) {
        const uint32_t position = first_token + token - range.first;
        if (position < options.sink_tokens) {
          ASSERT_EQ(coded.restored.bits(kind, layer, token, head, dim),
                    cache.bits(kind, layer, token, head, dim));
          return;
        }
        const double step = coded.header.steps[static_cast<size_t>(kind)][layer];
        const auto before = unrotated(cache, options.rope, kind, layer, token, head, dim, position);
        const auto after =
            unrotated(coded.restored, options.rope, kind, layer, token, head, dim, position);
        ASSERT_LE(std::abs(after - before), step / 2 + 1.5 * half_unit * (peak + step) + 0x1p-24)
            << kv_kind_name(kind) << " layer " << layer << " token " << token << " dim " << dim;
      });
}

TEST(Int8, ErrorIsHalfAStepOnRealKv) {
  const Cache cache = real_cache();
  expect_close(cache, {0, 64}, int8_options(real_rope(), 4), 0);
  expect_close(cache, {0, 64}, int8_options(), 0);
  expect_close(cache, {5, 50}, int8_options(real_rope(), 4), 5);
}

TEST(Int8, ErrorIsHalfAStepForEveryRopeAndDtype) {
  const Rope partial{Rope::Style::neox, 12, {1, uint64_t{1} << 50, 0x0123456789abcdef, 7, 8, 9}};
  const Rope ropes[] = {{},
                        *make_rope(Rope::Style::interleaved, 16, 10000.0),
                        *make_rope(Rope::Style::neox, 16, 500000.0),
                        partial};
  for (DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (const Rope& rope : ropes) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " rope style " +
                   std::to_string(static_cast<int>(rope.style)));
      const Cache cache = random_values({2, 2, 16, 8, dtype}, 60, 1);
      expect_close(cache, {0, 60}, int8_options(rope, 4), 0);
      expect_close(cache, {20, 40}, int8_options(rope, 4), 1000000);
    }
  }
}

TEST(Int8, UnrotatingKeysMakesThemSmaller) {
  const Cache cache = real_cache();
  const auto keys = [&](const Rope& rope) {
    uint64_t bytes = 0;
    const Coded coded = code(cache, {0, 64}, int8_options(rope, 4), 0);
    const ChunkInfo info = *read_chunk_info(coded.object);
    for (const PictureInfo& picture : info.pictures)
      if (picture.kind == KvKind::key) bytes += picture.bytes;
    return bytes;
  };
  Rope wrong = real_rope();
  wrong.style = Rope::Style::neox;
  EXPECT_LT(keys(real_rope()), keys({}));
  EXPECT_LT(keys(real_rope()), keys(wrong));
}

TEST(Int8, ShapesAndGeometries) {
  for (const testing_kv::NamedGeometry& named : testing_kv::many_geometries(40)) {
    SCOPED_TRACE(named.name);
    const Cache plain = random_values(named.geometry.shape, 40, 2);
    Cache engine = empty_cache(named.geometry, named.bytes);
    copy_elements(plain, engine);
    expect_close(engine, {3, 35}, int8_options({}, 5), 3);
    EXPECT_TRUE(code(plain, {3, 35}, int8_options({}, 5), 3).object ==
                code(engine, {3, 35}, int8_options({}, 5), 3).object);
  }
  EncodeOptions low_pictures = int8_options(*make_rope(Rope::Style::neox, 64, 10000.0), 4);
  low_pictures.max_picture_height = 144;
  expect_close(random_values({2, 5, 64, 33, DType::f16}, 19, 3), {0, 19}, low_pictures, 0);
  expect_close(random_values({3, 1, 72, 0, DType::bf16}, 40, 4), {0, 40}, int8_options(), 0);
  expect_close(random_values({1, 1, 2, 1, DType::f16}, 1, 5), {0, 1}, int8_options(), 9);
}

TEST(Int8, OutliersAreEscapesAndKeepTheirValue) {
  Cache cache = random_values({2, 1, 32, 32, DType::f16}, 256, 6);
  cache.set(KvKind::key, 0, 10, 0, 3, 900);
  cache.set(KvKind::value, 1, 255, 0, 31, -5000);
  const Coded coded = code(cache, {0, 256}, int8_options(), 0);
  ASSERT_EQ(coded.header.escapes.size(), 2u);
  const format::Escape first = coded.header.escapes[0], second = coded.header.escapes[1];
  EXPECT_EQ(first.row, 3u);
  EXPECT_EQ(first.token, 10u);
  EXPECT_GT(first.code, 127);
  EXPECT_EQ(second.kind, KvKind::value);
  EXPECT_EQ(second.row, 32u + 31);
  EXPECT_LT(second.code, -127);
  EXPECT_EQ(read_chunk_info(coded.object)->escapes, 2u);
  expect_close(cache, {0, 256}, int8_options(), 0);
  EXPECT_NEAR(coded.restored.value(KvKind::key, 0, 10, 0, 3), 900, 1);
  EXPECT_NEAR(coded.restored.value(KvKind::value, 1, 255, 0, 31), -5000, 8);
}

TEST(Int8, SinksKeepEveryBit) {
  Cache cache = random_values({2, 2, 8, 8, DType::f32}, 20, 7);
  // Even what int8 refuses elsewhere.
  cache.set(KvKind::key, 1, 0, 1, 2, std::numeric_limits<float>::quiet_NaN());
  cache.set(KvKind::value, 0, 3, 0, 0, -std::numeric_limits<float>::infinity());
  cache.set(KvKind::value, 0, 2, 0, 0, -0.0f);
  const EncodeOptions options = int8_options(*make_rope(Rope::Style::interleaved, 8, 10000.0), 4);
  const Coded whole = code(cache, {0, 20}, options, 0);
  EXPECT_EQ(whole.header.sink_tokens, 4u);
  for_each_element(cache.geometry.shape, {0, 4}, [&](auto... place) {
    ASSERT_EQ(whole.restored.bits(place...), cache.bits(place...));
  });
  // The chunk has one of the sinks; none; nothing else.
  EXPECT_EQ(code(cache, {4, 16}, options, 3).header.sink_tokens, 1u);
  EXPECT_EQ(code(cache, {4, 16}, options, 4).header.sink_tokens, 0u);
  const Coded only = code(cache, {0, 3}, options, 0);
  EXPECT_EQ(only.header.sink_tokens, 3u);
  for_each_element(cache.geometry.shape, {0, 3}, [&](auto... place) {
    ASSERT_EQ(only.restored.bits(place...), cache.bits(place...));
  });
}

TEST(Int8, ConstantRowsAndZeros) {
  Cache cache = empty_cache(KvShape{2, 1, 4, 4, DType::f16}, 30);
  expect_close(cache, {0, 30}, int8_options(), 0);
  EXPECT_EQ(code(cache, {0, 30}, int8_options(), 0).header.steps[0][0], 1.0f);
  for (uint32_t token = 0; token < 30; ++token)
    for (uint32_t dim = 0; dim < 4; ++dim)
      cache.set(KvKind::key, 0, token, 0, dim, static_cast<float>(dim) * 100 - 150);
  expect_close(cache, {0, 30}, int8_options(), 0);
}

TEST(Int8, TinyAndHugeNumbers) {
  Cache tiny = empty_cache(KvShape{1, 1, 4, 4, DType::f32}, 9);
  tiny.set(KvKind::key, 0, 3, 0, 1, FLT_TRUE_MIN);
  tiny.set(KvKind::value, 0, 3, 0, 1, -FLT_MIN);
  expect_close(tiny, {0, 9}, int8_options(), 0);
  Cache huge = empty_cache(KvShape{1, 1, 4, 4, DType::f32}, 9);
  huge.set(KvKind::key, 0, 3, 0, 1, FLT_MAX);
  huge.set(KvKind::key, 0, 4, 0, 1, -FLT_MAX);
  huge.set(KvKind::value, 0, 3, 0, 1, FLT_MAX);
  expect_close(huge, {0, 9}, int8_options(), 0);
}

TEST(Int8, RestoredNumbersStayFinite) {
  // All at the largest f16, so that a code rounded up would be beyond it.
  Cache cache = empty_cache(KvShape{1, 1, 8, 8, DType::f16}, 40);
  for_each_element(
      cache.geometry.shape, {0, 40}, [&](auto kind, auto layer, auto token, auto head, auto dim) {
        cache.set(kind, layer, token, head, dim, (token + dim) % 2 == 0 ? 65504.0f : -65504.0f);
      });
  for (const Rope& rope : {Rope{}, *make_rope(Rope::Style::neox, 8, 10000.0)}) {
    const Coded coded = code(cache, {0, 40}, int8_options(rope), 7);
    for_each_element(cache.geometry.shape, {0, 40}, [&](auto... place) {
      ASSERT_LT(coded.restored.bits(place...) & 0x7fff, 0x7c00u);
    });
  }
}

TEST(Int8, ThreadsDoNotChangeTheBytes) {
  const Cache cache = random_values({12, 2, 64, 64, DType::f16}, 40, 8);
  EncodeOptions options = int8_options(*make_rope(Rope::Style::neox, 64, 10000.0), 4);
  options.max_picture_height = 256;
  options.threads = 1;
  const Coded one = code(cache, {0, 40}, options, 0);
  options.threads = 4;
  const Coded four = code(cache, {0, 40}, options, 0);
  EXPECT_TRUE(one.object == four.object);
  EXPECT_TRUE(one.restored.memory == four.restored.memory);
}

TEST(Int8, RestoresAsDocumented) {
  // docs/format.md, "Tier int8", element by element; volatile makes every rounding happen.
  Cache cache = real_cache();
  cache.set(KvKind::key, 1, 40, 2, 6, 3000);  // an escape in a turned pair
  const Coded coded = code(cache, {0, 64}, int8_options(real_rope(), 4), 0);
  const format::Header& header = coded.header;
  ASSERT_FALSE(header.escapes.empty());
  const DecodedChunk chunk = *decode_pictures(coded.object, header, {});
  const auto number = [&](KvKind kind, uint32_t layer, uint32_t token, uint32_t channel) -> float {
    const GroupPlan& group = chunk.groups[static_cast<size_t>(kind)];  // one group a kind
    const uint32_t row = layer * 192 + channel;
    const PictureContent& content = chunk.contents[group.symbols[0]];
    int64_t value = content.samples[place_rows(header, group)[row].row * 64 + token] - 128;
    for (const format::Escape& escape : header.escapes)
      if (escape.kind == kind && escape.row == row && escape.token == token) value = escape.code;
    const auto index = static_cast<size_t>(kind);
    const volatile float sum = static_cast<float>(value + header.row_offsets[index][row]);
    const volatile float product = sum * header.steps[index][layer];
    return product;
  };
  const uint32_t head = 2;
  for (uint32_t token = 4; token < 64; token += 9) {
    for (uint32_t pair = 0; pair < 32; ++pair) {
      const transform::Turn turn = transform::turn_of_phase(token * header.rope.phase_steps[pair]);
      const float x0 = number(KvKind::key, 1, token, head * 64 + 2 * pair);
      const float x1 = number(KvKind::key, 1, token, head * 64 + 2 * pair + 1);
      const volatile float a = x0 * turn.cosine, b = x1 * turn.sine, c = x0 * turn.sine,
                           d = x1 * turn.cosine;
      const float turned[2] = {a - b, c + d};
      for (uint32_t i = 0; i < 2; ++i) {
        uint16_t expected = 0;
        transform::from_floats(DType::f16, &turned[i], 1, reinterpret_cast<std::byte*>(&expected));
        ASSERT_EQ(coded.restored.bits(KvKind::key, 1, token, head, 2 * pair + i), expected);
      }
      const float plain = number(KvKind::value, 0, token, head * 64 + pair);
      uint16_t expected = 0;
      transform::from_floats(DType::f16, &plain, 1, reinterpret_cast<std::byte*>(&expected));
      ASSERT_EQ(coded.restored.bits(KvKind::value, 0, token, head, pair), expected);
    }
  }
}

TEST(Int8, NonFiniteInputIsRefusedWithItsPlace) {
  const struct {
    KvKind kind;
    float value;
    const char* words;
  } cases[] = {{KvKind::key, std::numeric_limits<float>::infinity(),
                "K of layer 1, token 9, head 1, dim 5 is inf"},
               {KvKind::value, -std::numeric_limits<float>::infinity(),
                "V of layer 1, token 9, head 1, dim 5 is -inf"},
               {KvKind::value, std::numeric_limits<float>::quiet_NaN(),
                "V of layer 1, token 9, head 1, dim 5 is nan"}};
  for (const auto& c : cases) {
    Cache cache = random_values({2, 2, 8, 8, DType::f32}, 20, 9);
    cache.set(c.kind, 1, 11, 1, 5, c.value);
    const auto object = encode_chunk(cache.source(), {2, 18}, some_id(2), int8_options());
    ASSERT_FALSE(object.ok());
    EXPECT_EQ(object.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(object.error().message.find(c.words), std::string::npos) << object.error().message;
    EXPECT_NE(object.error().message.find("tier exact"), std::string::npos);
  }
}

TEST(Int8, OverflowOnUnrotatingIsRefused) {
  Cache cache = empty_cache(KvShape{1, 1, 2, 2, DType::f32}, 3);
  cache.set(KvKind::key, 0, 1, 0, 0, FLT_MAX);
  cache.set(KvKind::key, 0, 1, 0, 1, FLT_MAX);
  const Rope eighth{Rope::Style::neox, 2, {uint64_t{1} << 61}};
  const auto object = encode_chunk(cache.source(), {0, 3}, some_id(), int8_options(eighth));
  ASSERT_FALSE(object.ok());
  EXPECT_EQ(object.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(object.error().message.find("rotation was undone"), std::string::npos)
      << object.error().message;
}

}  // namespace
}  // namespace kvcodec
