// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "base/stopwatch.h"
#include "codec/chunk_encoder.h"
#include "kvcodec/fetch.h"

namespace kvcodec {

namespace {

// Enough for the headers of usual models; a longer header is then asked for by its length.
constexpr size_t kHeaderGuess = 64 << 10;

Status check_arguments(const KvSource& source, size_t tokens, const PublishOptions& options) {
  const uint32_t chunk_tokens = options.chunk_tokens;
  if (is_calibrated(options.encode.tier) && options.encode.profile == nullptr) {
    return make_error(ErrorCode::invalid_argument, "publish: tier {} needs a profile",
                      tier_name(options.encode.tier));
  }
  if (chunk_tokens == 0) {
    return make_error(ErrorCode::invalid_argument, "publish: chunk_tokens is 0");
  }
  if (source.geometry == nullptr) {
    return make_error(ErrorCode::invalid_argument, "publish: the source has no geometry");
  }
  if (source.geometry->tokens < tokens / chunk_tokens * chunk_tokens) {
    return make_error(ErrorCode::invalid_argument,
                      "publish: the source holds {} tokens, the sequence needs {}",
                      source.geometry->tokens, tokens / chunk_tokens * chunk_tokens);
  }
  return source.geometry->validate(source.memory.size());
}

// Whether the store has this object with a header that is whole and says what is expected.
// Payloads are not read: a reader checks them, and `replace` mends them.
Result<bool> is_present(Store& store, const std::string& name, const ChunkId& id, Tier tier) {
  auto stat = store.stat(name);
  if (!stat.ok()) {
    if (stat.error().code == ErrorCode::not_found) return false;
    return std::move(stat.error());
  }
  for (size_t bytes = kHeaderGuess;; bytes *= 4) {
    std::vector<std::byte> head(std::min<uint64_t>(bytes, stat->bytes));
    auto got = store.get(name, head);
    if (!got.ok()) {
      if (got.error().code == ErrorCode::not_found) return false;  // evicted meanwhile
      return std::move(got.error());
    }
    const auto info = read_chunk_info(std::span(head).first(*got));
    if (info.ok()) {
      return info->id == id && at_least(info->tier, tier) && info->object_bytes == stat->bytes;
    }
    if (head.size() == stat->bytes) return false;  // not a chunk: write it again
  }
}

// Chunks that are looked up, encoded and stored together.
struct Batch {
  std::vector<std::string> names;
  std::vector<bool> present;
  std::vector<ChunkToEncode> missing;
};

}  // namespace

Result<PublishReport> publish_prefix(Store& store, const Digest& ns,
                                     std::span<const int32_t> tokens, const KvSource& source,
                                     const PublishOptions& options) {
  KVCODEC_CHECK(check_arguments(source, tokens.size(), options));
  const std::vector<Digest> keys = chunk_keys(ns, tokens, options.chunk_tokens);
  const std::string rendition = options.rendition.empty()
                                    ? rendition_name(options.encode.tier, options.encode.profile)
                                    : options.rendition;
  PublishReport report;
  report.chunks = keys.size();
  report.tokens = static_cast<uint32_t>(keys.size() * options.chunk_tokens);
  report.raw_bytes = report.tokens * uint64_t{source.geometry->shape.token_bytes()};
  const uint64_t chunk_bytes =
      uint64_t{options.chunk_tokens} * source.geometry->shape.token_bytes();
  const size_t most =
      static_cast<size_t>(std::max<uint64_t>(1, options.max_bytes_in_flight / chunk_bytes));
  for (size_t done = 0; done < keys.size();) {
    Batch batch;
    for (size_t i = done; i < keys.size() && batch.missing.size() < most; ++i) {
      const TokenRange range{static_cast<uint32_t>(i * options.chunk_tokens), options.chunk_tokens};
      const ChunkId id{ns, keys[i], range.first};
      batch.names.push_back(object_name(ns, keys[i], rendition));
      Stopwatch looking;
      bool present = false;
      if (!options.replace) {
        KVCODEC_TRY(present, is_present(store, batch.names.back(), id, options.encode.tier));
      }
      report.store_seconds += looking.seconds();
      batch.present.push_back(present);
      if (!present) batch.missing.push_back({range, id});
    }
    Stopwatch encoding;
    EncodedChunks encoded = encode_chunks(source, batch.missing, options.encode);
    report.encode_seconds += encoding.seconds();
    auto object = encoded.objects.begin();
    for (size_t i = 0; i < batch.names.size(); ++i) {
      if (!batch.present[i]) {
        if (object == encoded.objects.end()) return std::move(encoded.status.error());
        KVCODEC_TRY(const ChunkInfo info,
                    read_chunk_info(*object, {UINT32_MAX, UINT64_MAX, UINT64_MAX}));
        report.finer += info.tier != options.encode.tier;
        Stopwatch storing;
        KVCODEC_CHECK(store.put(batch.names[i], *object));
        report.store_seconds += storing.seconds();
        report.object_bytes += object->size();
        report.chunk_bytes.push_back(object->size());
        ++report.written;
        ++object;
      } else {
        KVCODEC_TRY(const ObjectStat stat, store.stat(batch.names[i]));
        report.object_bytes += stat.bytes;
        report.chunk_bytes.push_back(stat.bytes);
      }
      ++done;
      if (options.progress) options.progress(done, keys.size());
    }
  }
  return report;
}

}  // namespace kvcodec
