// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "kvcodec/profile.h"
#include "kvcodec/result.h"

// What a fetch decides with: pure functions of measurements, without clocks or threads. Times are
// seconds on any clock that does not go back. docs/fetching.md derives the formulas.
namespace kvcodec {

// How fast a link is, from the transfers over it, however many at once. Time counts while at least
// one is under way, so an idle link does not look slow; two exponential averages (half-lives of
// busy time below) give their lower one, which follows a drop at once and a burst slowly. While
// nothing arrives the estimate falls by itself. Not thread-safe.
class BandwidthEstimator {
 public:
  static constexpr double kFastHalfLife = 0.25, kSlowHalfLife = 1.5;
  // What transfers must have moved before there is an estimate: start-up says little.
  static constexpr uint64_t kLeastBytes = 64 << 10;

  void begin(double now);                    // a transfer begins
  void deliver(double now, uint64_t bytes);  // bytes of any transfer have arrived
  void end(double now);                      // a transfer ends or is given up
  // Bytes a second; 0: not known yet.
  double bytes_per_second(double now) const;

 private:
  struct Average {
    double half_life = 0, bytes = 0, seconds = 0, arrivals = 0;
    void add(double busy, double delivered);
    double rate(double waiting) const;
  };
  void advance(double now);
  Average fast_{kFastHalfLife, 0, 0, 0}, slow_{kSlowHalfLife, 0, 0, 0};
  double at_ = 0, waiting_ = 0;  // waiting_: busy time since the last bytes
  size_t active_ = 0;
  uint64_t total_ = 0;
};

// How fast renditions are decoded and restored: bytes of uncompressed KV a second. Not thread-safe.
class DecodeRates {
 public:
  // Of one kind of machine, as measured; `name`: "cpu" (two cores of a server with AVX-512) or
  // "h200". invalid_argument names those there are.
  static Result<DecodeRates> of(const std::string& name);

  // The nearest there is: that of the rendition, of its tier, or of any.
  double bytes_per_second(const Rendition& rendition) const;
  void set(Tier tier, uint32_t picture_height, double bytes_per_second);
  // Corrects what is known by a measurement: `raw_bytes` of this rendition took `seconds`.
  void observe(const Rendition& rendition, uint64_t raw_bytes, double seconds);

 private:
  std::map<std::pair<Tier, uint32_t>, double> rates_;  // by tier and height
};

// What computing the KV of tokens [first, end) takes, those before being there: linear layers cost
// the same for every token, attention as many as are before it.
struct PrefillModel {
  double tokens_per_second = 0;             // without attention; 0: not known
  double attention_seconds_per_token2 = 0;  // of one token attending one token
  bool known() const { return tokens_per_second > 0; }
  double seconds(uint32_t first, uint32_t end) const;
};

// One way to fetch the next chunk.
struct RenditionChoice {
  uint64_t bytes = 0;         // of the next chunk; 0: it lacks this rendition
  double mean_bytes = 0;      // of the chunks after it
  double decode_seconds = 0;  // of a chunk
};
struct PipelineLoad {
  double bytes_per_second = 0;   // of the link
  double latency = 0;            // until the first byte of a transfer
  uint64_t bytes_under_way = 0;  // asked for, not arrived
  double decode_backlog = 0;     // seconds the decoder needs for all that was asked for
  size_t chunks_after = 0;       // after the next one
};
struct PlannedChunk {
  size_t choice = 0;
  double seconds = 0;  // until the last chunk is restored, if it goes on as well as it can
};
// The choice with which the fetch ends first. Of those that end within 1/100 of a chunk's share of
// that: the finest that is among them on a link of half the bandwidth too, and arrives before half
// of the decoder's work is done, as what is ahead of the decoder is what a drop of the link is met
// with; where none does, the smallest. `choices` are ordered from the finest fidelity; those above
// the floor only. What follows is taken as the best mixture of choices for the link and the
// decoder. Nothing where no choice is there. Requires a bandwidth.
std::optional<PlannedChunk> plan_chunk_fetch(std::span<const RenditionChoice> choices,
                                             const PipelineLoad& load);

// How to bring a prefix of `tokens` tokens into a cache where fetching tokens [a, b) takes
// fetch_latency + (b - a) / fetch_tokens_per_second.
struct PrefixSplit {
  enum class Order : uint8_t {
    fetch_then_compute,  // fetch [0, at), then compute [at, tokens): no compute while fetching
    compute_and_fetch,   // compute [0, at) while [at, tokens) is fetched
  };
  Order order = Order::fetch_then_compute;
  uint32_t at = 0;
  double seconds = 0;
};
// `granularity`: `at` is a multiple of it, or `tokens`. `may_overlap`: the engine can compute while
// a fetch runs. Requires a known prefill and positive rates.
PrefixSplit split_prefix(uint32_t tokens, uint32_t granularity, const PrefillModel& prefill,
                         double fetch_tokens_per_second, double fetch_latency, bool may_overlap);

}  // namespace kvcodec
