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
  // Part of the objects' names; empty: rendition_name() of the tier and profile.
  std::string rendition;
  Progress progress;
};

struct PublishReport {
  size_t chunks = 0, written = 0;  // of `chunks`, `written` were not there before
  size_t finer = 0;  // of `written`, coded at a finer tier: EncodeOptions::noise_factor
  uint32_t tokens = 0;
  uint64_t raw_bytes = 0, object_bytes = 0;
  double encode_seconds = 0, store_seconds = 0;
  std::vector<uint64_t> chunk_bytes;  // size of each chunk's object
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

// Publishes the prefix in several renditions, finest first or in any order: each is a
// publish_prefix() of `options` with that rendition's tier, picture height and profile
// (options.encode.profile, where the tier is calibrated). Then writes each chunk's manifest, which
// says which renditions there are, those that were there before included. Returns a report for each
// rendition. invalid_argument for an unknown rendition, one that is named twice, or more than 16.
Result<std::vector<PublishReport>> publish_renditions(Store& store, const Digest& ns,
                                                      std::span<const int32_t> tokens,
                                                      const KvSource& source,
                                                      std::span<const std::string> renditions,
                                                      const PublishOptions& options);

// What manifests say of a prefix: its leading chunks, and how large each rendition of each is.
struct PrefixCatalog {
  uint32_t chunk_tokens = 0;
  std::vector<std::string> renditions;       // of any chunk
  std::vector<std::vector<uint32_t>> bytes;  // [chunk][rendition]; 0: that chunk lacks it
  size_t chunks() const { return bytes.size(); }
};
// The longest chain of leading chunks that manifests know, in one or two rounds of parallel gets
// for 64 chunks, and about one more for each factor of eight. A chunk is in it while it has one
// rendition at least; an empty catalog where there is no manifest. A manifest that is faulty counts
// as missing. Errors of the store are returned.
Result<PrefixCatalog> read_catalog(Store& store, const Digest& ns, std::span<const int32_t> tokens,
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
  double transfer_seconds = 0;          // time spent inside the store
  double decode_seconds = 0;            // time spent decoding and restoring
  double seconds = 0;                   // wall clock; transfer and decoding overlap
  std::vector<std::string> renditions;  // of each chunk that was restored
  // Why it ended before the last chunk: a miss, or the fault that was met. Tokens from
  // tokens_restored on must be recomputed.
  std::optional<Error> stopped_by;
};

// Restores the longest chain of leading chunks present, transfer and decoding overlapped. A
// missing or faulty chunk ends it and is reported, never restored; only a wrong call is an error.
Result<FetchReport> fetch_prefix(Store& store, const Digest& ns, std::span<const int32_t> tokens,
                                 const KvTarget& target, const FetchOptions& options);

}  // namespace kvcodec
