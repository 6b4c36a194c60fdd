// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "base/parallel.h"
#include "fetch_bench.h"
#include "store/faulty_store.h"

namespace kvcodec::bench {
namespace {

constexpr size_t kClients = 64, kFetches = 2000;
constexpr uint32_t kChunkTokens = 16, kChunks = 8;
constexpr double kDeadline = 2;

struct Prefix {
  std::vector<int32_t> tokens;
  std::vector<std::byte> memory;
};

// One call in eight goes wrong, in one of eight ways.
Fault some_fault(std::mt19937& random, const StoreCall& call) {
  Fault fault;
  switch (random() % 64) {
    case 0: fault.error = Error{ErrorCode::unavailable, "503"}; break;
    case 1: fault.error = Error{ErrorCode::io, "connection reset"}; break;
    case 2: fault.error = Error{ErrorCode::not_found, "evicted"}; break;
    case 3: fault.max_read = random() % 400; break;
    case 4:
      fault.flip = {call.offset + random() % 4000, std::byte{static_cast<uint8_t>(random() | 1)}};
      break;
    case 5: fault.truncate_at = random() % 4000; break;
    case 6: std::this_thread::sleep_for(std::chrono::milliseconds(random() % 50)); break;
    case 7:  // a stall
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 4 == 0 ? 1500 : 300));
      break;
    default: break;
  }
  return fault;
}

}  // namespace

std::string faults(const FetchSettings&) {
  const KvShape shape{2, 2, 8, 8, DType::f16};
  const KvGeometry geometry = KvGeometry::contiguous(shape, kChunkTokens * kChunks);
  const Digest ns = sha256(std::as_bytes(std::span("fetch_faults")));
  auto store = value_or_fail(open_store("mem:"));
  std::mt19937 seed(1);
  std::vector<Prefix> prefixes(16);
  const std::vector<std::string> renditions = {"exact", "exact-h512"};
  for (Prefix& prefix : prefixes) {
    for (uint32_t i = 0; i < kChunkTokens * kChunks; ++i)
      prefix.tokens.push_back(static_cast<int32_t>(seed() % 50000));
    prefix.memory.resize(geometry.contiguous_bytes());
    for (std::byte& byte : prefix.memory) byte = static_cast<std::byte>(seed());
    PublishOptions options;
    options.chunk_tokens = kChunkTokens;
    options.encode.threads = 1;
    value_or_fail(publish_renditions(*store, ns, prefix.tokens, {prefix.memory, &geometry},
                                     renditions, options));
  }
  std::mutex mutex;
  std::mt19937 random(2);
  std::atomic<uint64_t> injected{0};
  FaultyStore faulty(*store, [&](const StoreCall& call) {
    std::mt19937 own = [&] {
      const std::lock_guard lock(mutex);
      return std::mt19937(random());
    }();
    const Fault fault = some_fault(own, call);
    injected +=
        fault.error || fault.max_read != SIZE_MAX || fault.flip || fault.truncate_at != UINT64_MAX;
    return fault;
  });
  std::map<std::string, size_t> ends;
  size_t wrong = 0, late = 0, chunks = 0, hedges = 0, retries = 0;
  double longest = 0;
  std::atomic<size_t> next{0};
  PrefixFetcher fetcher(faulty, value_or_fail(DecodeRates::of("cpu")));
  {
    std::vector<std::jthread> clients;
    for (size_t c = 0; c < kClients; ++c)
      clients.emplace_back([&] {
        for (size_t i; (i = next++) < kFetches;) {
          const Prefix& prefix = prefixes[i % prefixes.size()];
          std::vector<std::byte> memory(prefix.memory.size(), std::byte{0xa5});
          const auto restorer = value_or_fail(host_restorer({memory, &geometry}));
          AdaptiveOptions options;
          options.chunk_tokens = kChunkTokens;
          options.threads = 1;
          options.stall_seconds = 0.25;
          options.deadline_seconds = kDeadline;
          const double start = now(Clock::wall);
          const auto report = value_or_fail(fetcher.fetch(ns, prefix.tokens, *restorer, options));
          const double seconds = now(Clock::wall) - start;
          size_t differing = 0;
          for (uint32_t layer = 0; layer < shape.layers; ++layer)
            for (KvKind kind : kKvKinds)
              for (uint32_t token = 0; token < geometry.tokens; ++token) {
                const size_t at = geometry.element_offset(kind, layer, token, 0, 0);
                const size_t bytes = shape.channels(kind) * size_t{2};
                const std::vector<std::byte> untouched(bytes, std::byte{0xa5});
                const std::byte* want =
                    token < report.tokens_restored ? prefix.memory.data() + at : untouched.data();
                differing += std::memcmp(memory.data() + at, want, bytes) != 0;
              }
          const std::lock_guard lock(mutex);
          wrong += differing > 0;
          late += seconds > kDeadline + 0.5;
          longest = std::max(longest, seconds);
          chunks += report.chunks;
          hedges += report.hedges;
          retries += report.retries;
          ++ends[report.stopped_by ? error_code_name(report.stopped_by->code) : "complete"];
        }
      });
  }
  std::string counts;
  for (const auto& [end, count] : ends)
    counts += fmt::format("{}\"{}\":{}", counts.empty() ? "" : ",", end, count);
  fmt::print(
      "{} fetches by {} clients, {} faults: {} with wrong bytes, {} beyond the deadline; "
      "{} chunks restored, {} hedges, {} retries, longest {:.2f} s; ends {{{}}}\n",
      kFetches, kClients, injected.load(), wrong, late, chunks, hedges, retries, longest, counts);
  return fmt::format(
      "{{\"fetches\":{},\"clients\":{},\"faults\":{},\"wrong\":{},\"late\":{},\"chunks\":{},"
      "\"hedges\":{},\"retries\":{},\"longest_seconds\":{:.3f},\"deadline_seconds\":{},"
      "\"ends\":{{{}}}}}",
      kFetches, kClients, injected.load(), wrong, late, chunks, hedges, retries, longest, kDeadline,
      counts);
}

}  // namespace kvcodec::bench
