// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "kvcodec/codec.h"
#include "kvcodec/profile.h"
#include "kvcodec/store.h"

namespace kvcodec {

inline constexpr uint32_t kDefaultChunkTokens = 256;

// Called after each chunk, from the calling thread.
using Progress = std::function<void(size_t done, size_t total)>;

struct PublishOptions {
  EncodeOptions encode;
  uint32_t chunk_tokens = kDefaultChunkTokens;
  bool replace = false;  // false: chunks that are present and whole are left alone
  // Chunks of so many bytes of cache, one at least, are encoded together, which pays where a chunk
  // has few pictures. Bounds memory: a few times that.
  uint64_t max_bytes_in_flight = uint64_t{64} << 20;
  Progress progress;
};

struct PublishReport {
  size_t chunks = 0, written = 0;  // of `chunks`, `written` were not there before
  size_t finer = 0;  // of `written`, coded at a finer tier: EncodeOptions::noise_factor
  uint32_t tokens = 0;
  uint64_t raw_bytes = 0, object_bytes = 0;
  double encode_seconds = 0, store_seconds = 0;
};

// Stores every whole chunk of `tokens`, under the rendition_name() of options.encode's tier and
// profile. Token i of the sequence is token i of the geometry.
Result<PublishReport> publish_prefix(Store& store, const Digest& ns,
                                     std::span<const int32_t> tokens, const KvSource& source,
                                     const PublishOptions& options);

// How many leading tokens are present in `store` as whole chunks of a rendition.
Result<uint32_t> match_prefix(Store& store, const Digest& ns, std::span<const int32_t> tokens,
                              std::string_view rendition,
                              uint32_t chunk_tokens = kDefaultChunkTokens);

struct FetchOptions {
  std::string rendition = "exact";   // rendition_name()
  const Profile* profile = nullptr;  // calibrated renditions: the one that the name is of; borrowed
  // Fidelity floor: no chunk of a lower tier is restored, and a lower rendition is refused.
  // Profile::tier_within() gives that of a KL budget.
  Tier lowest_tier = Tier::small;
  uint32_t chunk_tokens = kDefaultChunkTokens;
  uint32_t max_tokens = UINT32_MAX;  // fetch no more than this many leading tokens
  size_t max_chunks_in_flight = 4;   // bounds memory: objects fetched and not yet restored
  Limits limits;
  int threads = 0;  // decoding; 0: all cores
  Progress progress;
  std::stop_token stop;
};

struct FetchReport {
  uint32_t tokens_restored = 0;  // leading tokens of the target that are valid
  size_t chunks = 0;
  uint64_t object_bytes = 0;
  double transfer_seconds = 0;  // time spent inside the store
  double decode_seconds = 0;    // time spent decoding and restoring
  double seconds = 0;           // wall clock; transfer and decoding overlap
  // Why it ended before the last chunk: a miss, or the fault that was met. Tokens from
  // tokens_restored on must be recomputed.
  std::optional<Error> stopped_by;
};

// Restores the longest chain of leading chunks present, transfer and decoding overlapped. A
// missing or faulty chunk ends it and is reported, never restored; only a wrong call is an error.
Result<FetchReport> fetch_prefix(Store& store, const Digest& ns, std::span<const int32_t> tokens,
                                 const KvTarget& target, const FetchOptions& options);

}  // namespace kvcodec
