// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "base/parallel.h"
#include "fetch_bench.h"

namespace kvcodec::bench {
namespace {

constexpr size_t kTransfers = 4;
constexpr size_t kInFlight = 16;

struct Times {
  double transfer = 1e300, decode = 1e300, fetch = 1e300;
};

std::vector<std::string> names_of(const LongPrefix& prefix, const std::string& rendition) {
  std::vector<std::string> names;
  for (const Digest& key : chunk_keys(prefix.ns, prefix.tokens, kDefaultChunkTokens))
    names.push_back(object_name(prefix.ns, key, rendition));
  return names;
}

double transfer_alone(Store& link, const std::vector<std::string>& names) {
  const double start = now(Clock::wall);
  parallel_for(names.size(), static_cast<int>(kTransfers),
               [&](size_t i, int) { value_or_fail(get_object(link, names[i], UINT64_MAX)); });
  return now(Clock::wall) - start;
}

// The objects are there: as many at once as a fetch decodes at once.
double decode_alone(Store& store, const LongPrefix& prefix, const std::vector<std::string>& names,
                    Tier tier, ChunkRestorer& restorer, int threads) {
  std::vector<std::vector<std::byte>> objects;
  for (const std::string& name : names)
    objects.push_back(value_or_fail(get_object(store, name, UINT64_MAX)));
  const auto keys = chunk_keys(prefix.ns, prefix.tokens, kDefaultChunkTokens);
  DecodeOptions options;
  options.threads = threads;
  const double start = now(Clock::wall);
  for (size_t at = 0; at < objects.size(); at += kInFlight / 2) {
    std::vector<FetchedChunk> chunks;
    for (size_t i = at; i < std::min(objects.size(), at + kInFlight / 2); ++i) {
      const auto first = static_cast<uint32_t>(i * kDefaultChunkTokens);
      chunks.push_back({objects[i], {prefix.ns, keys[i], first}, first, tier});
    }
    const auto outcome = restorer.restore(chunks, options, [] { return true; });
    if (!outcome.status.ok()) fail(outcome.status.error().message);
  }
  return now(Clock::wall) - start;
}

}  // namespace

std::string overlap(const FetchSettings& settings, const LongPrefix& prefix) {
  const std::string rendition = "int8-h512";
  const auto store = publish(prefix, settings, nullptr, {rendition});
  const auto names = names_of(prefix, rendition);
  std::vector<std::byte> memory(prefix.memory.size());
  const auto restorer = value_or_fail(host_restorer({memory, &prefix.geometry}));
  uint64_t bytes = 0;
  for (const std::string& name : names) bytes += value_or_fail(store->stat(name)).bytes;
  double decode = 1e300;
  for (uint32_t i = 0; i < settings.repeat; ++i)
    decode = std::min(decode,
                      decode_alone(*store, prefix, names, Tier::int8, *restorer, settings.threads));
  std::string rows;
  // Half as fast as the decoder, as fast, twice as fast.
  for (const double speed : {0.5, 1.0, 2.0}) {
    const double bits_per_second = speed * 8 * static_cast<double>(bytes) / decode;
    Times best;
    double ratio = 1e300;
    for (uint32_t i = 0; i < settings.repeat; ++i) {
      const auto link = limit_bandwidth(*store, bits_per_second);
      const double t = transfer_alone(*link, names);
      const double d = decode_alone(*store, prefix, names, Tier::int8, *restorer, settings.threads);
      PrefixFetcher fetcher(*link, value_or_fail(DecodeRates::of("cpu")));
      AdaptiveOptions options;
      options.transfers = kTransfers;
      options.max_chunks_in_flight = kInFlight;
      options.threads = settings.threads;
      const double start = now(Clock::wall);
      const auto report =
          value_or_fail(fetcher.fetch(prefix.ns, prefix.tokens, *restorer, options));
      const double f = now(Clock::wall) - start;
      if (report.chunks != names.size())
        fail("overlap: " + (report.stopped_by ? report.stopped_by->message : "not all"));
      ratio = std::min(ratio, f / std::max(t, d));
      best = {std::min(best.transfer, t), std::min(best.decode, d), std::min(best.fetch, f)};
    }
    fmt::print(
        "{:7.0f} Mb/s: transfer {:.3f} s, decode {:.3f} s, fetch {:.3f} s: {:.3f} of the "
        "slower (best run {:.3f})\n",
        bits_per_second / 1e6, best.transfer, best.decode, best.fetch,
        best.fetch / std::max(best.transfer, best.decode), ratio);
    rows += fmt::format(
        "{}{{\"mbps\":{:.1f},\"transfer_seconds\":{:.4f},\"decode_seconds\":{:.4f},"
        "\"fetch_seconds\":{:.4f}}}",
        rows.empty() ? "" : ",", bits_per_second / 1e6, best.transfer, best.decode, best.fetch);
  }
  return fmt::format("{{\"rendition\":\"{}\",\"chunks\":{},\"bytes\":{},\"rows\":[{}]}}", rendition,
                     names.size(), bytes, rows);
}

}  // namespace kvcodec::bench
