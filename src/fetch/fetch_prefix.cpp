// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <new>
#include <thread>

#include "base/error.h"
#include "base/stopwatch.h"
#include "codec/chunk_decoder.h"
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

// Above this, one chunk has pictures enough to keep the decoder busy.
constexpr uint64_t kMaxBytesTogether = uint64_t{16} << 20;

// Restores chunks that follow those of the report, up to the first miss or fault.
void restore_batch(std::vector<Fetched>& batch, std::span<const Digest> keys,
                   const KvTarget& target, const FetchOptions& options, const DecodeOptions& decode,
                   const Digest& ns, FetchReport& report) {
  std::vector<ChunkId> ids;
  std::optional<Error> miss;
  for (Fetched& fetched : batch) {
    report.transfer_seconds += fetched.seconds;
    if (!fetched.object.ok()) {  // the last
      miss = std::move(fetched.object.error());
      break;
    }
    const size_t i = report.chunks + ids.size();
    ids.push_back({ns, keys[i], static_cast<uint32_t>(i * options.chunk_tokens)});
    report.object_bytes += fetched.object->size();
  }
  std::vector<ChunkToRestore> chunks;
  for (size_t i = 0; i < ids.size(); ++i)
    chunks.push_back({*batch[i].object, ids[i].first_token, &ids[i]});
  const auto count_chunk = [&] {
    ++report.chunks;
    report.tokens_restored += options.chunk_tokens;
    if (options.progress) options.progress(report.chunks, keys.size());
    return !options.stop.stop_requested();
  };
  Stopwatch watch;
  RestoredChunks restored = decode_chunks(chunks, target, decode, count_chunk);
  report.decode_seconds += watch.seconds();
  if (!restored.status.ok()) {
    report.stopped_by = std::move(restored.status.error());
    report.stopped_by->message =
        fmt::format("{}: {}", object_name(ns, keys[report.chunks], options.rendition),
                    report.stopped_by->message);
  } else if (miss && restored.chunks == chunks.size() && !options.stop.stop_requested()) {
    report.stopped_by = std::move(miss);
  }
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
  // Objects being restored count as in flight too.
  const size_t max_waiting = std::max<size_t>(1, options.max_chunks_in_flight / 2);
  const size_t max_together =
      options.max_chunks_in_flight - std::min(max_waiting, options.max_chunks_in_flight - 1);
  BoundedQueue<Fetched> queue(max_waiting);
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
  // The more chunks that have arrived are decoded together the better, as long as they are small.
  const auto more = [&](const std::vector<Fetched>& taken) {
    uint64_t bytes = 0;
    for (const Fetched& fetched : taken) bytes += fetched.object.ok() ? fetched.object->size() : 0;
    return taken.size() < max_together && bytes < kMaxBytesTogether;
  };
  while (!report.stopped_by && !options.stop.stop_requested()) {
    std::vector<Fetched> batch = queue.pop_some(more);
    if (batch.empty()) break;
    restore_batch(batch, keys, target, options, decode, ns, report);
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
