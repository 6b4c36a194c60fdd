// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "kvcodec/adaptive.h"
#include "output.h"

namespace kvcodec::tools {

// What `fetch` takes for prefixes that were published with --renditions.
struct AdaptiveFlags {
  bool adaptive = false;
  std::vector<std::string> renditions;
  double deadline = 0, stall = AdaptiveOptions{}.stall_seconds, prefill_rate = 0;
  std::string machine = "cpu", trace, metrics;
  bool log = false;
  void add_to(CLI::App& command);
};

// A fetch by those flags, with what it is observed by. Write the files when it is over.
class AdaptiveRun {
 public:
  // `profile` is borrowed. invalid_argument for flags that mean nothing.
  static Result<std::unique_ptr<AdaptiveRun>> create(const AdaptiveFlags& flags,
                                                     const Profile* profile, Tier lowest_tier);
  Result<AdaptiveReport> fetch(Store& store, const Digest& ns, std::span<const int32_t> tokens,
                               const KvTarget& target);
  // The files of --trace and --metrics.
  Status write_files() const;
  AdaptiveOptions& options() { return options_; }
  const AdaptiveOptions& options() const { return options_; }
  // What the last fetch did beyond a FetchReport.
  nlohmann::json json() const;
  std::string text() const;

 private:
  AdaptiveRun() = default;
  AdaptiveFlags flags_;
  AdaptiveOptions options_;
  DecodeRates rates_;
  Trace trace_;
  Metrics metrics_;
  AdaptiveReport report_;
};

}  // namespace kvcodec::tools
