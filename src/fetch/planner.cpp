// SPDX-License-Identifier: Apache-2.0
#include "kvcodec/planner.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace kvcodec {
namespace {

// A finer tier must cost no time on a link of this share of the bandwidth either.
constexpr double kDrop = 0.5;
constexpr double kNever = std::numeric_limits<double>::infinity();

// Chunks of one choice: seconds of the link and of the decoder.
struct Cost {
  double link = 0, decode = 0;
};

// The earliest end of `chunks` more chunks, each of any choice, where link and decoder are busy
// until `link` and `decode`. A linear programme of two constraints: the optimum mixes at most two.
double best_mixture(std::span<const Cost> costs, double chunks, double link, double decode) {
  double best = kNever;
  const auto end_of = [&](const Cost& a, const Cost& b, double share) {
    const double on_link = link + chunks * (share * a.link + (1 - share) * b.link);
    const double on_decoder = decode + chunks * (share * a.decode + (1 - share) * b.decode);
    return std::max(on_link, on_decoder);
  };
  for (size_t i = 0; i < costs.size(); ++i) {
    best = std::min(best, end_of(costs[i], costs[i], 1));
    for (size_t j = 0; j < i; ++j) {
      // Where link and decoder end together.
      const double slope =
          chunks * ((costs[i].link - costs[j].link) - (costs[i].decode - costs[j].decode));
      if (slope == 0) continue;
      const double share =
          ((decode + chunks * costs[j].decode) - (link + chunks * costs[j].link)) / slope;
      if (share > 0 && share < 1) best = std::min(best, end_of(costs[i], costs[j], share));
    }
  }
  return best;
}

}  // namespace

double PrefillModel::seconds(uint32_t first, uint32_t end) const {
  if (end <= first) return 0;
  const double a = first, b = end;
  return (b - a) / tokens_per_second + attention_seconds_per_token2 * (b * b - a * a) / 2;
}

namespace {

// When all ends, and when the next chunk arrives, for each choice, on a link of that rate.
struct Ends {
  std::vector<double> all, arrivals;
  double best = kNever;
};
Ends ends_at(double rate, std::span<const RenditionChoice> choices, const PipelineLoad& load) {
  std::vector<Cost> after;
  double last_decode = kNever;
  for (const RenditionChoice& choice : choices) {
    if (choice.mean_bytes <= 0) continue;
    after.push_back({choice.mean_bytes / rate, choice.decode_seconds});
    last_decode = std::min(last_decode, choice.decode_seconds);
  }
  const double link_busy = load.latency + static_cast<double>(load.bytes_under_way) / rate;
  Ends ends{std::vector<double>(choices.size(), kNever),
            std::vector<double>(choices.size(), kNever), kNever};
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].bytes == 0) continue;
    const double arrival = link_busy + static_cast<double>(choices[i].bytes) / rate;
    const double decoded = std::max(load.decode_backlog, arrival) + choices[i].decode_seconds;
    // The last chunk is decoded after the link has carried it.
    ends.all[i] = load.chunks_after == 0 || after.empty()
                      ? decoded
                      : best_mixture(after, static_cast<double>(load.chunks_after),
                                     arrival + last_decode, decoded);
    ends.arrivals[i] = arrival;
    ends.best = std::min(ends.best, ends.all[i]);
  }
  return ends;
}

}  // namespace

std::optional<PlannedChunk> plan_chunk_fetch(std::span<const RenditionChoice> choices,
                                             const PipelineLoad& load) {
  const Ends now = ends_at(load.bytes_per_second, choices, load);
  const Ends slower = ends_at(load.bytes_per_second * kDrop, choices, load);
  if (now.best == kNever) return std::nullopt;
  const double share = 1 / (100 * (static_cast<double>(load.chunks_after) + 1));
  const auto ties = [&](const Ends& ends, size_t i) {
    return ends.all[i] <= ends.best * (1 + share);
  };
  size_t chosen = choices.size();
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!ties(now, i)) continue;
    // Early enough that a drop of the link would not leave the decoder without work.
    if (ties(slower, i) && now.arrivals[i] <= std::max(load.decode_backlog / 2, now.best * share))
      return PlannedChunk{i, now.all[i]};
    if (chosen == choices.size() || choices[i].bytes < choices[chosen].bytes) chosen = i;
  }
  return PlannedChunk{chosen, now.all[chosen]};
}

PrefixSplit split_prefix(uint32_t tokens, uint32_t granularity, const PrefillModel& prefill,
                         double fetch_tokens_per_second, double fetch_latency, bool may_overlap) {
  const auto fetch = [&](uint32_t count) {
    return count == 0 ? 0.0 : fetch_latency + count / fetch_tokens_per_second;
  };
  PrefixSplit best{PrefixSplit::Order::fetch_then_compute, 0, prefill.seconds(0, tokens)};
  for (uint64_t step = 0; step < tokens + uint64_t{granularity}; step += granularity) {
    const auto at = static_cast<uint32_t>(std::min<uint64_t>(step, tokens));
    const double serial = fetch(at) + prefill.seconds(at, tokens);
    if (serial < best.seconds) best = {PrefixSplit::Order::fetch_then_compute, at, serial};
    if (!may_overlap) continue;
    const double overlapped = std::max(prefill.seconds(0, at), fetch(tokens - at));
    if (overlapped < best.seconds) best = {PrefixSplit::Order::compute_and_fetch, at, overlapped};
  }
  return best;
}

}  // namespace kvcodec
