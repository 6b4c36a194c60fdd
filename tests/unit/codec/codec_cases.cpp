// SPDX-License-Identifier: Apache-2.0
#include "unit/codec/codec_cases.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "transform/float_convert.h"

namespace kvcodec::testing_codec {

uint32_t Cache::bits(KvKind kind, uint32_t layer, uint32_t token, uint32_t head,
                     uint32_t dim) const {
  uint32_t value = 0;
  std::memcpy(&value, memory.data() + geometry.element_offset(kind, layer, token, head, dim),
              dtype_bytes(geometry.shape.dtype));
  return value;
}

double Cache::value(KvKind kind, uint32_t layer, uint32_t token, uint32_t head,
                    uint32_t dim) const {
  float value = 0;
  transform::to_floats(geometry.shape.dtype,
                       memory.data() + geometry.element_offset(kind, layer, token, head, dim), 1,
                       &value);
  return value;
}

void Cache::set(KvKind kind, uint32_t layer, uint32_t token, uint32_t head, uint32_t dim,
                float value) {
  std::byte* at = memory.data() + geometry.element_offset(kind, layer, token, head, dim);
  if (geometry.shape.dtype == DType::f32)
    std::memcpy(at, &value, sizeof value);  // infinities and NaNs too
  else
    transform::from_floats(geometry.shape.dtype, &value, 1, at);
}

Cache empty_cache(const KvShape& shape, uint32_t tokens) {
  const KvGeometry geometry = KvGeometry::contiguous(shape, tokens);
  return empty_cache(geometry, geometry.contiguous_bytes());
}

Cache empty_cache(const KvGeometry& geometry, size_t bytes) {
  return {geometry, std::vector<std::byte>(bytes)};
}

Cache random_bits(const KvShape& shape, uint32_t tokens, uint32_t seed) {
  Cache cache = empty_cache(shape, tokens);
  std::mt19937 random(seed);
  for (std::byte& byte : cache.memory) byte = static_cast<std::byte>(random());
  return cache;
}

Cache random_values(const KvShape& shape, uint32_t tokens, uint32_t seed) {
  Cache cache = empty_cache(shape, tokens);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (KvKind kind : kKvKinds)
    for (uint32_t layer = 0; layer < shape.layers; ++layer)
      for (uint32_t head = 0; head < shape.kv_heads; ++head)
        for (uint32_t dim = 0; dim < shape.head_dim(kind); ++dim) {
          const float mean = 3 * normal(random), spread = std::exp2(normal(random));
          for (uint32_t token = 0; token < tokens; ++token)
            cache.set(kind, layer, token, head, dim, mean + spread * normal(random));
        }
  return cache;
}

Cache real_cache() {
  Cache cache = empty_cache(KvShape{2, 3, 64, 64, DType::f16}, 64);
  std::ifstream file(KVCODEC_CODEC_DATA "/smollm2_gpl3.f16", std::ios::binary);
  file.read(reinterpret_cast<char*>(cache.memory.data()),
            static_cast<std::streamsize>(cache.memory.size()));
  EXPECT_TRUE(file.good()) << "cannot read " KVCODEC_CODEC_DATA "/smollm2_gpl3.f16";
  return cache;
}

Rope real_rope() { return *make_rope(Rope::Style::interleaved, 64, 100000.0); }

void copy_elements(const Cache& from, Cache& to) {
  const size_t element = dtype_bytes(from.geometry.shape.dtype);
  for_each_element(
      from.geometry.shape, {0, from.geometry.tokens},
      [&](KvKind kind, uint32_t layer, uint32_t token, uint32_t head, uint32_t dim) {
        std::memcpy(
            to.memory.data() + to.geometry.element_offset(kind, layer, token, head, dim),
            from.memory.data() + from.geometry.element_offset(kind, layer, token, head, dim),
            element);
      });
}

ChunkId some_id(uint32_t first_token) {
  ChunkId id;
  id.ns.bytes.fill(std::byte{0x11});
  id.key.bytes.fill(std::byte{0x22});
  id.first_token = first_token;
  return id;
}

std::string fmt_shape(const KvShape& shape, uint32_t tokens) {
  return fmt::format("{} layers, {} heads of {} and {} dims, {}, {} tokens", shape.layers,
                     shape.kv_heads, shape.key_dim, shape.value_dim, dtype_name(shape.dtype),
                     tokens);
}

}  // namespace kvcodec::testing_codec
