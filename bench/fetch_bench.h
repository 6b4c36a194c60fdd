// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench_cache.h"
#include "kvcodec/adaptive.h"

// What the benchmarks of fetching share: a long prefix of a model's own KV in a store.
namespace kvcodec::bench {

struct FetchSettings {
  std::vector<std::string> kv;  // .safetensors of kvcodec fetch -o; see bench/run.py
  std::string profile;          // empty: only exact and int8
  double rope_base = 100000;
  uint32_t chunks = 64;
  uint32_t repeat = 3;
  int threads = 0;
  std::string json;
};

// The chunks of the caches that were given, at the positions of a prefix of `chunks` chunks: int8
// codes are restored at other positions, so keys are rotated as the model would have.
struct LongPrefix {
  Digest ns;
  std::vector<int32_t> tokens;
  KvGeometry geometry;
  std::vector<std::byte> memory;
  Rope rope;
  uint64_t chunk_bytes() const { return geometry.shape.token_bytes() * kDefaultChunkTokens; }
};
LongPrefix make_prefix(const FetchSettings& settings);

std::unique_ptr<Store> publish(const LongPrefix& prefix, const FetchSettings& settings,
                               const Profile* profile, const std::vector<std::string>& renditions);

// Fetch time against transfer alone and decoding alone.
std::string overlap(const FetchSettings& settings, const LongPrefix& prefix);
// Adaptive against fixed renditions over links whose speed changes.
std::string adaptive(const FetchSettings& settings, const LongPrefix& prefix,
                     const Profile* profile);
// Many clients, many faults.
std::string faults(const FetchSettings& settings);

}  // namespace kvcodec::bench
