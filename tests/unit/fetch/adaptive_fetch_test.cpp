// SPDX-License-Identifier: Apache-2.0
// What a fetch over several renditions chooses, restores and bounds.
#include <algorithm>
#include <atomic>
#include <random>

#include "adaptive_fixture.h"
#include "fetch/manifest.h"

namespace kvcodec {
namespace {

class AdaptiveFetch : public AdaptiveFixture {};

TEST_F(AdaptiveFetch, RestoresThePrefix) {
  Target target = make_target();
  const auto report = fetch(*store_, target, adaptive_options());
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_FALSE(report->stopped_by.has_value()) << report->stopped_by->message;
  EXPECT_EQ(report->chunks, kChunks);
  EXPECT_EQ(report->chunks_known, kChunks);
  EXPECT_EQ(report->hedges + report->retries + report->switches, 0u);
  expect_as_reference(target, *report);
}

TEST_F(AdaptiveFetch, OnlyWhatIsAllowedIsUsed) {
  AdaptiveOptions options = adaptive_options();
  options.renditions = {"int8-h144"};
  Target target = make_target();
  auto report = fetch(*store_, target, options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->renditions, std::vector<std::string>(kChunks, "int8-h144"));
  options.renditions.clear();
  options.lowest_tier = Tier::exact;
  Target exact = make_target();
  report = fetch(*store_, exact, options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->renditions, std::vector<std::string>(kChunks, "exact"));
  expect_restored(exact, kChunks * kTestChunk);
  options.renditions = {"int8"};
  EXPECT_EQ(fetch(*store_, target, options).error().code, ErrorCode::invalid_argument);
  options.renditions = {"nonsense"};
  EXPECT_EQ(fetch(*store_, target, options).error().code, ErrorCode::invalid_argument);
}

TEST_F(AdaptiveFetch, MixedRenditionsAreRestoredChunkByChunk) {
  // Each chunk is left with another set.
  ASSERT_TRUE(store_->remove(name(0, "exact")).ok());
  ASSERT_TRUE(store_->remove(name(1, "int8")).ok());
  ASSERT_TRUE(store_->remove(name(1, "int8-h144")).ok());
  ASSERT_TRUE(store_->remove(name(3, "exact")).ok());
  ASSERT_TRUE(store_->remove(name(3, "int8")).ok());
  Target target = make_target();
  const auto report = fetch(*store_, target, adaptive_options());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->chunks, kChunks);
  EXPECT_EQ(report->renditions[1], "exact");
  EXPECT_EQ(report->renditions[3], "int8-h144");
  expect_as_reference(target, *report);
}

TEST_F(AdaptiveFetch, AnEmptyStoreIsAMiss) {
  const auto empty = open_store("mem:");
  Target target = make_target();
  const auto report = fetch(**empty, target, adaptive_options());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->chunks, 0u);
  EXPECT_EQ(report->stopped_by->code, ErrorCode::not_found);
  expect_restored(target, 0);
}

TEST_F(AdaptiveFetch, AFasterLinkGivesAFinerTier) {
  // Decoding is what takes time here, so a fast link has room for exact.
  AdaptiveOptions options = adaptive_options();
  options.assumed_bytes_per_second = 1e12;
  Target target = make_target();
  DecodeRates rates;  // all the same
  rates.set(Tier::exact, 0, 1e6);
  PrefixFetcher fetcher(*store_, rates);
  const auto restorer = host_restorer(target.target());
  auto report = fetcher.fetch(namespace_, tokens_, **restorer, options);
  EXPECT_EQ(report->renditions[0], "exact");
  const auto link = limit_bandwidth(*store_, 1e6);
  options.assumed_bytes_per_second = 1e6 / 8;
  DecodeRates fast;
  fast.set(Tier::exact, 0, 1e12);
  PrefixFetcher over_link(*link, fast);
  report = over_link.fetch(namespace_, tokens_, **restorer, options);
  EXPECT_EQ(report->chunks, kChunks);
  EXPECT_NE(report->renditions[0], "exact");
  expect_as_reference(target, *report);
}

// The reference under random delays, few and many in flight, parts of any size.
TEST_F(AdaptiveFetch, RandomDelaysGiveTheSequentialBytes) {
  std::mutex mutex;
  std::mt19937 random(5);
  const auto pause = [&](unsigned most) {
    std::unique_lock lock(mutex);
    const auto delay = std::chrono::microseconds(random() % most);
    lock.unlock();
    std::this_thread::sleep_for(delay);
  };
  for (int round = 0; round < 40; ++round) {
    AdaptiveOptions options = adaptive_options();
    options.max_chunks_in_flight = 1 + static_cast<size_t>(round) % 4;
    options.transfers = 1 + static_cast<size_t>(round) % 5;
    options.max_bytes_in_flight = round % 3 == 0 ? 1 : 20000;
    options.progress = [&](size_t, size_t) { pause(1500); };
    FaultyStore slow(*store_, [&](const StoreCall&) {
      pause(2000);
      return Fault{};
    });
    Target target = make_target();
    const auto report = fetch(slow, target, options);
    ASSERT_TRUE(report.ok());
    ASSERT_EQ(report->chunks, kChunks);
    expect_as_reference(target, *report);
  }
}

// Counts what is held between the store and the decoder.
class CountingRestorer final : public ChunkRestorer {
 public:
  CountingRestorer(ChunkRestorer& inner, std::atomic<int64_t>& held) : inner_(inner), held_(held) {}
  const KvGeometry& geometry() const override { return inner_.geometry(); }
  Outcome restore(std::span<const FetchedChunk> chunks, const DecodeOptions& options,
                  const std::function<bool()>& go_on) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // transfers run ahead
    for (const FetchedChunk& chunk : chunks) held_ -= static_cast<int64_t>(chunk.object.size());
    return inner_.restore(chunks, options, go_on);
  }

 private:
  ChunkRestorer& inner_;
  std::atomic<int64_t>& held_;
};

TEST_F(AdaptiveFetch, MemoryAndTransfersAreBounded) {
  const auto largest = static_cast<int64_t>(store_->stat(name(0, "exact"))->bytes);
  for (size_t chunks : {size_t{1}, size_t{2}, size_t{5}}) {
    std::atomic<int64_t> held{0}, most{0};
    std::atomic<int> gets{0}, most_gets{0};
    FaultyStore counting(*store_, [&](const StoreCall& call) {
      if (call.op == StoreOp::get && call.bytes < kMaxManifestBytes) {
        const int64_t now = held += static_cast<int64_t>(call.bytes);
        for (int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        const int under_way = ++gets;
        for (int seen = most_gets; under_way > seen;)
          if (most_gets.compare_exchange_weak(seen, under_way)) break;
        std::this_thread::sleep_for(std::chrono::microseconds(300));
        --gets;
      }
      return Fault{};
    });
    AdaptiveOptions options = adaptive_options();
    options.lowest_tier = Tier::exact;
    options.max_chunks_in_flight = chunks;
    options.max_bytes_in_flight = static_cast<uint64_t>(2 * largest);
    options.transfers = 2;
    options.assumed_bytes_per_second = 1e9;
    Target target = make_target();
    const auto inner = host_restorer(target.target());
    CountingRestorer restorer(**inner, held);
    PrefixFetcher fetcher(counting, *DecodeRates::of("cpu"));
    const auto report = fetcher.fetch(namespace_, tokens_, restorer, options);
    ASSERT_EQ(report->chunks, kChunks);
    // Chunks in the decoder were taken off the count, so these are only those before it.
    EXPECT_LE(most, 2 * largest);
    EXPECT_LE(most, static_cast<int64_t>(chunks) * largest);
    EXPECT_LE(most_gets, 2);
    expect_restored(target, kChunks * kTestChunk);
  }
}

TEST_F(AdaptiveFetch, EndsWhereComputingIsSooner) {
  const auto link = limit_bandwidth(*store_, 1e6);
  AdaptiveOptions options = adaptive_options();
  options.assumed_bytes_per_second = 1e6 / 8;
  options.prefill = {1e6, 0};
  Target target = make_target();
  auto report = fetch(*link, target, options);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->recompute_is_sooner);
  EXPECT_LT(report->chunks, kChunks);
  ASSERT_TRUE(report->stopped_by.has_value());
  EXPECT_NE(report->stopped_by->message.find("computing"), std::string::npos);
  expect_as_reference(target, *report);
  options.prefill = {10, 0};
  report = fetch(*link, target, options);
  EXPECT_FALSE(report->recompute_is_sooner);
  EXPECT_EQ(report->chunks, kChunks);
}

TEST_F(AdaptiveFetch, WrongCallsAreErrors) {
  Target target = make_target();
  const auto invalid = [&](auto change) {
    AdaptiveOptions options = adaptive_options();
    change(options);
    const auto report = fetch(*store_, target, options);
    return !report.ok() && report.error().code == ErrorCode::invalid_argument;
  };
  EXPECT_TRUE(invalid([](AdaptiveOptions& o) { o.chunk_tokens = 0; }));
  EXPECT_TRUE(invalid([](AdaptiveOptions& o) { o.max_chunks_in_flight = 0; }));
  EXPECT_TRUE(invalid([](AdaptiveOptions& o) { o.transfers = 0; }));
  EXPECT_TRUE(invalid([](AdaptiveOptions& o) { o.transfers = 1000; }));
  EXPECT_TRUE(invalid([](AdaptiveOptions& o) { o.stall_seconds = 0; }));
  EXPECT_TRUE(invalid([](AdaptiveOptions& o) { o.deadline_seconds = -1; }));
  EXPECT_FALSE(host_restorer({target.memory, nullptr}).ok());
  target.geometry.tokens = kTestChunk;
  EXPECT_TRUE(invalid([](AdaptiveOptions&) {}));
  EXPECT_FALSE(DecodeRates::of("abacus").ok());
}

}  // namespace
}  // namespace kvcodec
