// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "fetch/transfer_window.h"
#include "kvcodec/adaptive.h"

namespace kvcodec {

struct PlannerOptions {
  std::vector<std::string> allowed;  // empty: all
  const Profile* profile = nullptr;
  Tier lowest_tier = Tier::small;
  PrefillModel prefill;
  uint64_t chunk_bytes = 0;  // uncompressed
};

// Answers a window's questions for one prefix. Thread-safe.
class RenditionPlanner {
 public:
  // invalid_argument for a rendition that is asked for and may not be used.
  static Result<std::unique_ptr<RenditionPlanner>> create(const Digest& ns,
                                                          std::vector<Digest> keys,
                                                          PrefixCatalog catalog, DecodeRates rates,
                                                          const PlannerOptions& options);
  size_t chunks() const { return sizes_.size(); }  // leading ones with a rendition to use
  std::span<const Rendition> renditions() const { return renditions_; }  // finest first
  std::span<const std::string> names() const { return names_; }
  Result<std::optional<Wanted>> plan(const PlanQuestion& question);
  // Chunks of these renditions, decoded together, took so long.
  void measured(std::span<const size_t> renditions, double seconds);

  DecodeRates rates() const;
  double expected_seconds() const;
  bool recompute_is_sooner() const;

 private:
  RenditionPlanner() = default;
  double decode_seconds(size_t rendition) const;
  size_t smallest(const PlanQuestion& question) const;
  Wanted wanted(size_t chunk, size_t rendition) const;

  Digest ns_;
  std::vector<Digest> keys_;
  PlannerOptions options_;
  std::vector<Rendition> renditions_;
  std::vector<std::string> names_;
  std::vector<std::vector<uint32_t>> sizes_;     // [chunk][rendition]
  std::vector<std::vector<double>> mean_after_;  // [chunk][rendition], of the chunks after it
  uint32_t chunk_tokens_ = 0;
  mutable std::mutex mutex_;  // guards what follows
  DecodeRates rates_;
  std::vector<bool> measured_;  // renditions that this fetch has decoded
  double expected_seconds_ = 0;
  bool recompute_is_sooner_ = false;
};

// Counts what a fetch did.
void count_fetch(const AdaptiveReport& report, Metrics& metrics);

// A span from here to the end of the scope.
class TraceSpan {
 public:
  TraceSpan(const Observers& observers, std::string track, std::string name)
      : trace_(observers.trace), track_(std::move(track)), name_(std::move(name)) {
    if (trace_ != nullptr) began_ = trace_->now();
  }
  ~TraceSpan() {
    if (trace_ != nullptr) trace_->span(track_, name_, began_, trace_->now());
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
  std::string track_, name_;
  double began_ = 0;
};

}  // namespace kvcodec
