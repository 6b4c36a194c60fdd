// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kvcodec/fetch.h"
#include "kvcodec/observe.h"
#include "kvcodec/planner.h"
#include "kvcodec/restorer.h"

namespace kvcodec {

struct LeftThread;

struct AdaptiveOptions {
  // What the fetch may choose from, of what manifests list; empty: everything. Calibrated ones of
  // another profile than `profile` are never used.
  std::vector<std::string> renditions;
  const Profile* profile = nullptr;  // borrowed
  // Fidelity floor: no rendition of a lower tier is used.
  Tier lowest_tier = Tier::small;
  uint32_t chunk_tokens = kDefaultChunkTokens;
  uint32_t max_tokens = UINT32_MAX;  // fetch no more than this many leading tokens
  // Chunks and bytes of objects that are asked for and not yet restored; one chunk is always let
  // in.
  size_t max_chunks_in_flight = 16;
  uint64_t max_bytes_in_flight = uint64_t{64} << 20;
  size_t transfers = 4;  // gets at once
  // A get without an answer for so long, and for four times what it should take, is asked again
  // once, then another rendition is; where none is left the fetch ends.
  double stall_seconds = 2;
  // The fetch ends by itself after so long, with what is restored; 0: never. A chunk that is being
  // decoded is waited for.
  double deadline_seconds = 0;
  // Where known, the fetch ends as soon as computing the rest is expected to end sooner.
  PrefillModel prefill;
  double assumed_bytes_per_second = 0;  // of the link; 0: what this fetcher measured last
  Limits limits;
  int threads = 0;  // decoding; 0: all cores
  Progress progress;
  std::stop_token stop;
  Observers observers;
};

struct AdaptiveReport : FetchReport {
  size_t chunks_known = 0;    // leading chunks that manifests know of
  uint64_t wasted_bytes = 0;  // of transfers that were given up
  size_t hedges = 0, retries = 0, switches = 0;
  double bytes_per_second = 0;       // of the link, at the end
  double expected_seconds = 0;       // what the planner said when it chose the first chunk
  bool recompute_is_sooner = false;  // it ended for that
};

// Fetches prefixes that were published in several renditions, and picks one for each chunk.
// Remembers how fast the link and the decoder are. Thread-safe: fetches may run at once.
class PrefixFetcher {
 public:
  // Borrows the store. `rates` is where the measuring of the decoder starts from.
  PrefixFetcher(Store& store, DecodeRates rates);
  // Waits for gets that were given up and are still inside the store.
  ~PrefixFetcher();
  PrefixFetcher(const PrefixFetcher&) = delete;
  PrefixFetcher& operator=(const PrefixFetcher&) = delete;

  // Restores the longest chain of leading chunks that is worth it. Whatever the store does is
  // reported in the result, never restored, and ends within the deadline; only a wrong call is an
  // error. The restorer is used by the calling thread alone.
  Result<AdaptiveReport> fetch(const Digest& ns, std::span<const int32_t> tokens,
                               ChunkRestorer& restorer, const AdaptiveOptions& options);

 private:
  class Run;
  struct Left;
  void leave(std::vector<LeftThread> threads);
  Store& store_;
  std::mutex mutex_;
  DecodeRates rates_;
  double link_bytes_per_second_ = 0;
  std::unique_ptr<Left> left_;
};

}  // namespace kvcodec
