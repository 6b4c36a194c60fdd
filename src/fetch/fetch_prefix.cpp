// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <new>
#include <thread>

#include "base/error.h"
#include "base/stopwatch.h"
#include "fetch/bounded_queue.h"
#include "kvcodec/fetch.h"

namespace kvcodec {

namespace {

struct Fetched {
  Result<std::vector<std::byte>> object;
  double seconds = 0;
};

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

// get_object on a thread of its own, where nothing could catch an exception.
Result<std::vector<std::byte>> get_or_error(Store& store, const std::string& name,
                                            uint64_t max_bytes) {
  try {
    return get_object(store, name, max_bytes);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::out_of_memory, "{}: no memory for the object", name);
  }
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

  Stopwatch all;
  FetchReport report;
  // The object being restored counts as in flight too.
  BoundedQueue<Fetched> queue(std::max<size_t>(1, options.max_chunks_in_flight - 1));
  std::jthread transfer([&](const std::stop_token& own_stop) {
    for (const Digest& key : keys) {
      if (own_stop.stop_requested() || options.stop.stop_requested()) break;
      Stopwatch watch;
      auto object = get_or_error(store, object_name(ns, key, options.rendition),
                                 options.limits.max_object_bytes);
      const bool last = !object.ok();
      if (!queue.push({std::move(object), watch.seconds()}) || last) break;
    }
    queue.close();
  });

  DecodeOptions decode;
  // A calibrated rendition has chunks of finer tiers where one was far off the profile.
  (is_calibrated(rendition.tier) ? decode.lowest_tier : decode.expected_tier) = &rendition.tier;
  decode.profile = options.profile;
  decode.limits = options.limits;
  decode.threads = options.threads;
  for (std::optional<Fetched> next; (next = queue.pop()).has_value();) {
    const size_t i = report.chunks;
    report.transfer_seconds += next->seconds;
    if (!next->object.ok()) {
      report.stopped_by = std::move(next->object.error());
      break;
    }
    const ChunkId id{ns, keys[i], report.tokens_restored};
    decode.expected = &id;
    Stopwatch watch;
    Status restored = decode_chunk(*next->object, target, id.first_token, decode);
    report.decode_seconds += watch.seconds();
    report.object_bytes += next->object->size();
    if (!restored.ok()) {
      report.stopped_by = std::move(restored.error());
      report.stopped_by->message = fmt::format(
          "{}: {}", object_name(ns, keys[i], options.rendition), report.stopped_by->message);
      break;
    }
    ++report.chunks;
    report.tokens_restored += options.chunk_tokens;
    if (options.progress) options.progress(report.chunks, keys.size());
    if (options.stop.stop_requested()) break;
  }
  queue.close();
  transfer.request_stop();
  transfer.join();
  if (options.stop.stop_requested() && report.chunks < keys.size() && !report.stopped_by) {
    report.stopped_by = make_error(ErrorCode::cancelled, "fetch: cancelled after {} of {} chunks",
                                   report.chunks, keys.size());
  }
  report.seconds = all.seconds();
  return report;
}

}  // namespace kvcodec
