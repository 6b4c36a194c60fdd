// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kvcodec/codec.h"
#include "kvcodec/profile.h"

// Chunks for the GPU's benchmarks.
namespace kvcodec::bench {

using Bytes = std::vector<std::byte>;

[[noreturn]] void fail(const std::string& message);
template <typename T>
T must(Result<T> result) {
  if (!result.ok()) fail(result.error().message);
  return *std::move(result);
}
void must_ok(const Status& status);

Bytes read_file(const std::string& path);
std::vector<std::string> split(const std::string& text, char by);
// "80x8x128": layers, heads, dim of both kinds.
KvShape parse_shape(const std::string& text);

// Another model's cache with a real one's statistics: channel by channel, layer by layer, repeated.
struct HostCache {
  KvGeometry geometry;
  Bytes memory;
};
HostCache tiled_cache(const Bytes& object, const KvShape& shape);
Bytes tile(const Bytes& object, const KvShape& shape, Tier tier);

// A cache of another model's shape at a calibrated tier: `layers` a group, a basis that mixes all
// channels of a group, and the codes of a real chunk, whose components are spread over as many as
// the groups have, each turned by some tokens.
struct CalibratedChunk {
  Profile profile;
  Bytes object;
};
CalibratedChunk calibrated_chunk(const Bytes& real, const KvShape& shape, uint32_t layers);

// A paged cache as vLLM's FlashAttention backend has it, K and V of a layer apart, blocks of 16.
KvGeometry paged(const KvShape& shape, uint32_t tokens);

}  // namespace kvcodec::bench
