// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "base/stopwatch.h"
#include "fetch/restore_loop.h"
#include "kvcodec/fetch.h"

namespace kvcodec {

namespace {

// The store answers or fails in its own time here; PrefixFetcher has deadlines.
constexpr double kNeverStalls = 1e9;
constexpr size_t kTransfers = 2;

Status check_arguments(const KvTarget& target, uint32_t tokens, const FetchOptions& options) {
  if (options.max_chunks_in_flight == 0) {
    return make_error(ErrorCode::invalid_argument, "fetch: max_chunks_in_flight is 0");
  }
  if (target.geometry == nullptr) {
    return make_error(ErrorCode::invalid_argument, "fetch: the target has no geometry");
  }
  if (target.geometry->tokens < tokens) {
    return make_error(ErrorCode::invalid_argument,
                      "fetch: the target holds {} tokens, the sequence needs {}",
                      target.geometry->tokens, tokens);
  }
  return target.geometry->validate(target.memory.size());
}

Status check_rendition(const Rendition& rendition, const FetchOptions& options) {
  if (!at_least(rendition.tier, options.lowest_tier)) {
    return make_error(ErrorCode::invalid_argument,
                      "fetch: rendition {} is below the fidelity floor, tier {}", options.rendition,
                      tier_name(options.lowest_tier));
  }
  if (!is_calibrated(rendition.tier)) return ok_status();
  if (options.profile == nullptr) {
    return make_error(ErrorCode::invalid_argument, "fetch: rendition {} needs its profile",
                      options.rendition);
  }
  const std::string given = rendition_name(rendition.tier, options.profile);
  if (given == options.rendition) return ok_status();
  return make_error(ErrorCode::invalid_argument,
                    "fetch: rendition {} is of another profile, that of the one given is {}",
                    options.rendition, given);
}

// Keys of the leading whole chunks that may be fetched.
Result<std::vector<Digest>> leading_keys(const Digest& ns, std::span<const int32_t> tokens,
                                         uint32_t chunk_tokens, uint32_t max_tokens) {
  if (chunk_tokens == 0) {
    return make_error(ErrorCode::invalid_argument, "fetch: chunk_tokens is 0");
  }
  return chunk_keys(ns, tokens.first(std::min<size_t>(tokens.size(), max_tokens)), chunk_tokens);
}

}  // namespace

Result<uint32_t> match_prefix(Store& store, const Digest& ns, std::span<const int32_t> tokens,
                              std::string_view rendition, uint32_t chunk_tokens) {
  KVCODEC_TRY(const std::vector<Digest> keys, leading_keys(ns, tokens, chunk_tokens, UINT32_MAX));
  uint32_t matched = 0;
  for (const Digest& key : keys) {
    auto stat = store.stat(object_name(ns, key, rendition));
    if (!stat.ok()) {
      if (stat.error().code == ErrorCode::not_found) break;
      return std::move(stat.error());
    }
    matched += chunk_tokens;
  }
  return matched;
}

Result<FetchReport> fetch_prefix(Store& store, const Digest& ns, std::span<const int32_t> tokens,
                                 const KvTarget& target, const FetchOptions& options) {
  KVCODEC_TRY(const std::vector<Digest> keys,
              leading_keys(ns, tokens, options.chunk_tokens, options.max_tokens));
  const auto needed = static_cast<uint32_t>(keys.size() * options.chunk_tokens);
  KVCODEC_CHECK(check_arguments(target, needed, options));
  KVCODEC_TRY(const Rendition rendition, parse_rendition(options.rendition));
  KVCODEC_CHECK(check_rendition(rendition, options));

  KVCODEC_TRY(const auto restorer, host_restorer(target));
  Stopwatch all;
  FetchReport report;
  WindowOptions window_options;
  // Objects being restored count as in flight too.
  window_options.max_chunks = options.max_chunks_in_flight;
  window_options.transfers = std::min<size_t>(kTransfers, options.max_chunks_in_flight);
  window_options.max_bytes = UINT64_MAX;
  window_options.max_object_bytes = options.limits.max_object_bytes;
  window_options.stall_seconds = kNeverStalls;
  window_options.max_attempts = 1;
  const Plan plan = [&](const PlanQuestion& question) -> Result<std::optional<Wanted>> {
    return std::optional<Wanted>(
        {0, object_name(ns, keys[question.chunk], options.rendition), 0, 0});
  };
  const auto window =
      std::make_shared<TransferWindow>(store, window_options, keys.size(), plan, nullptr);
  window->start();
  RestoreRequest request;
  request.ns = ns;
  request.keys = keys;
  request.renditions = std::span(&rendition, 1);
  request.rendition_names = std::span(&options.rendition, 1);
  request.total_chunks = keys.size();
  request.chunk_tokens = options.chunk_tokens;
  request.decode.profile = options.profile;
  request.decode.limits = options.limits;
  request.decode.threads = options.threads;
  request.max_together = std::max<size_t>(1, options.max_chunks_in_flight / 2);
  request.progress = options.progress;
  request.stop = options.stop;
  restore_in_order(*window, *restorer, request, report);
  for (LeftThread& left : window->close()) left.thread.join();
  report.transfer_seconds = window->totals().seconds;
  report.seconds = all.seconds();
  return report;
}

}  // namespace kvcodec
