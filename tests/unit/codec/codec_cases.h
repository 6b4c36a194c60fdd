// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kvcodec/codec.h"

namespace kvcodec::testing_codec {

// A cache that owns its memory.
struct Cache {
  KvGeometry geometry;
  std::vector<std::byte> memory;

  KvSource source() const { return {memory, &geometry}; }
  KvTarget target() { return {memory, &geometry}; }
  uint32_t bits(KvKind kind, uint32_t layer, uint32_t token, uint32_t head, uint32_t dim) const;
  double value(KvKind kind, uint32_t layer, uint32_t token, uint32_t head, uint32_t dim) const;
  void set(KvKind kind, uint32_t layer, uint32_t token, uint32_t head, uint32_t dim, float value);
};

Cache empty_cache(const KvShape& shape, uint32_t tokens);
Cache empty_cache(const KvGeometry& geometry, size_t bytes);
// Every bit random: NaNs, infinities, denormals and all.
Cache random_bits(const KvShape& shape, uint32_t tokens, uint32_t seed);
// Numbers as a model makes them: every channel normal, with a mean and a spread of its own.
Cache random_values(const KvShape& shape, uint32_t tokens, uint32_t seed);
// Real KV: see data/README.md.
Cache real_cache();
Rope real_rope();

// Copies every element from one cache to another of its shape, one by one.
void copy_elements(const Cache& from, Cache& to);

// Calls body(kind, layer, token, head, dim) for every element of tokens [first, first + count).
template <typename Body>
void for_each_element(const KvShape& shape, TokenRange tokens, const Body& body) {
  for (KvKind kind : kKvKinds)
    for (uint32_t layer = 0; layer < shape.layers; ++layer)
      for (uint32_t token = tokens.first; token < tokens.first + tokens.count; ++token)
        for (uint32_t head = 0; head < shape.kv_heads; ++head)
          for (uint32_t dim = 0; dim < shape.head_dim(kind); ++dim)
            body(kind, layer, token, head, dim);
}

ChunkId some_id(uint32_t first_token = 0);
// For SCOPED_TRACE.
std::string fmt_shape(const KvShape& shape, uint32_t tokens);

}  // namespace kvcodec::testing_codec
