// SPDX-License-Identifier: Apache-2.0
// Whatever a store does, an adaptive fetch restores right tokens and ends in time.
#include <atomic>
#include <random>

#include "adaptive_fixture.h"
#include "base/stopwatch.h"

namespace kvcodec {
namespace {

class AdaptiveFaults : public AdaptiveFixture {
 protected:
  AdaptiveReport fetch_with(FaultPlan plan, AdaptiveOptions options) {
    FaultyStore faulty(*store_, std::move(plan));
    Target target = make_target();
    auto report = fetch(faulty, target, options);
    EXPECT_TRUE(report.ok()) << report.error().message;
    expect_as_reference(target, *report);
    return *std::move(report);
  }
  static bool is_chunk(const StoreCall& call) {
    return call.op == StoreOp::get && !call.name.ends_with("/manifest");
  }
};

TEST_F(AdaptiveFaults, AnotherRenditionStandsIn) {
  const auto spoil = [&](Fault fault) {
    return [this, fault](const StoreCall& call) {
      return is_chunk(call) && call.name == name(2, "int8") ? fault : Fault{};
    };
  };
  AdaptiveOptions options = adaptive_options();
  options.renditions = {"int8", "exact"};
  options.assumed_bytes_per_second = 1e5;  // int8 is what it would take
  DecodeRates fast;
  for (ErrorCode code : {ErrorCode::not_found, ErrorCode::io, ErrorCode::unavailable}) {
    Fault fault;
    fault.error = Error{code, "injected"};
    const AdaptiveReport report = fetch_with(spoil(fault), options);
    EXPECT_EQ(report.chunks, kChunks);
    EXPECT_EQ(report.renditions[2], "exact") << error_code_name(code);
    EXPECT_GE(report.retries, 1u);
  }
  Fault cut, flipped;
  cut.truncate_at = 100;
  flipped.flip = {200, std::byte{4}};
  for (const Fault& fault : {cut, flipped}) {
    const AdaptiveReport report = fetch_with(spoil(fault), options);
    EXPECT_EQ(report.chunks, kChunks);
    EXPECT_EQ(report.renditions[2], "exact");
  }
}

TEST_F(AdaptiveFaults, AMomentOfUnavailabilityIsWaitedOut) {
  std::atomic<int> failures{0};
  AdaptiveOptions options = adaptive_options();
  options.renditions = {"exact"};
  const AdaptiveReport report = fetch_with(
      [&](const StoreCall& call) {
        Fault fault;
        if (is_chunk(call) && call.name == name(1) && failures++ == 0)
          fault.error = Error{ErrorCode::unavailable, "injected"};
        return fault;
      },
      options);
  EXPECT_EQ(report.chunks, kChunks);
  EXPECT_EQ(report.retries, 1u);
}

TEST_F(AdaptiveFaults, TheChainEndsWhereNothingStandsIn) {
  AdaptiveOptions options = adaptive_options();
  const AdaptiveReport report = fetch_with(
      [&](const StoreCall& call) {
        Fault fault;
        if (is_chunk(call) && call.name.starts_with(name(3).substr(0, 129)))
          fault.flip = {150, std::byte{1}};
        return fault;
      },
      options);
  EXPECT_EQ(report.chunks, 3u);
  ASSERT_TRUE(report.stopped_by.has_value());
  EXPECT_EQ(report.stopped_by->code, ErrorCode::corrupt);
  EXPECT_NE(report.stopped_by->message.find(name(3).substr(0, 129)), std::string::npos);
}

TEST_F(AdaptiveFaults, AStalledGetIsAskedAgain) {
  Gate gate;
  std::atomic<int> stalls{0};
  FaultyStore faulty(*store_, [&](const StoreCall& call) {
    if (is_chunk(call) && call.name.starts_with(name(1).substr(0, 129)) && stalls++ == 0)
      gate.wait();
    return Fault{};
  });
  AdaptiveOptions options = adaptive_options();
  options.stall_seconds = 0.3;
  Target target = make_target();
  const auto restorer = host_restorer(target.target());
  PrefixFetcher fetcher(faulty, *DecodeRates::of("cpu"));
  const auto report = fetcher.fetch(namespace_, tokens_, **restorer, options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->chunks, kChunks);
  EXPECT_GE(report->hedges, 1u);
  expect_as_reference(target, *report);
  // The late answer comes when nobody wants it any more.
  gate.open();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  expect_as_reference(target, *report);
}

TEST_F(AdaptiveFaults, AStoreThatNeverAnswersDoesNotBlock) {
  for (const bool manifests_too : {false, true}) {
    Gate gate;
    FaultyStore faulty(*store_, [&](const StoreCall& call) {
      if (call.op == StoreOp::get && (manifests_too || is_chunk(call))) gate.wait();
      return Fault{};
    });
    AdaptiveOptions options = adaptive_options();
    options.stall_seconds = 0.05;
    Target target = make_target();
    const auto restorer = host_restorer(target.target());
    PrefixFetcher fetcher(faulty, *DecodeRates::of("cpu"));
    Stopwatch watch;
    const auto report = fetcher.fetch(namespace_, tokens_, **restorer, options);
    EXPECT_LT(watch.seconds(), 5) << "seconds; it should be well below one";
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->chunks, 0u);
    ASSERT_TRUE(report->stopped_by.has_value());
    EXPECT_EQ(report->stopped_by->code, ErrorCode::unavailable);
    expect_restored(target, 0);
    gate.open();
  }
}

TEST_F(AdaptiveFaults, TheDeadlineHolds) {
  Gate gate;
  FaultyStore faulty(*store_, [&](const StoreCall& call) {
    if (is_chunk(call) && call.name.starts_with(name(2).substr(0, 129))) gate.wait();
    return Fault{};
  });
  AdaptiveOptions options = adaptive_options();
  options.deadline_seconds = 1;
  options.stall_seconds = 100;
  Target target = make_target();
  const auto restorer = host_restorer(target.target());
  PrefixFetcher fetcher(faulty, *DecodeRates::of("cpu"));
  Stopwatch watch;
  const auto report = fetcher.fetch(namespace_, tokens_, **restorer, options);
  EXPECT_GE(watch.seconds(), 0.99);
  EXPECT_LT(watch.seconds(), 5);
  EXPECT_EQ(report->chunks, 2u);
  EXPECT_EQ(report->stopped_by->code, ErrorCode::unavailable);
  EXPECT_NE(report->stopped_by->message.find("deadline"), std::string::npos);
  expect_as_reference(target, *report);
  gate.open();
}

TEST_F(AdaptiveFaults, ACancelledFetchReturnsWhileAGetWaits) {
  for (const char* blocked : {"chunk", "manifest"}) {
    Gate gate;
    std::stop_source stop;
    FaultyStore faulty(*store_, [&](const StoreCall& call) {
      if (is_chunk(call) == (blocked == std::string("chunk"))) gate.wait();
      return Fault{};
    });
    AdaptiveOptions options = adaptive_options();
    options.stop = stop.get_token();
    options.stall_seconds = 100;
    Target target = make_target();
    const auto restorer = host_restorer(target.target());
    PrefixFetcher fetcher(faulty, *DecodeRates::of("cpu"));
    std::jthread canceller([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      stop.request_stop();
    });
    Stopwatch watch;
    const auto report = fetcher.fetch(namespace_, tokens_, **restorer, options);
    EXPECT_LT(watch.seconds(), 5);
    EXPECT_EQ(report->stopped_by->code, ErrorCode::cancelled) << blocked;
    expect_restored(target, 0);
    gate.open();
  }
}

// Everything at once, many times: right bytes or none, and always an end.
TEST_F(AdaptiveFaults, RandomFaultsNeverGiveWrongBytes) {
  std::mutex mutex;
  std::mt19937 random(11);
  size_t whole = 0, partial = 0;
  for (int round = 0; round < 150; ++round) {
    const auto plan = [&](const StoreCall& call) {
      const std::lock_guard lock(mutex);
      Fault fault;
      switch (random() % 24) {
        case 0: fault.error = Error{ErrorCode::unavailable, "injected"}; break;
        case 1: fault.error = Error{ErrorCode::not_found, "injected"}; break;
        case 2: fault.max_read = random() % 500; break;
        case 3:
          fault.flip = {call.offset + random() % 3000,
                        std::byte{static_cast<uint8_t>(random() | 1)}};
          break;
        case 4: fault.truncate_at = random() % 4000; break;
        default: break;
      }
      return fault;
    };
    AdaptiveOptions options = adaptive_options();
    options.transfers = 1 + random() % 4;
    options.deadline_seconds = 10;
    const AdaptiveReport report = fetch_with(plan, options);
    (report.chunks == kChunks ? whole : partial) += 1;
    ASSERT_EQ(report.chunks == kChunks, !report.stopped_by.has_value());
  }
  EXPECT_GT(whole, 0u);
  EXPECT_GT(partial, 0u);
}

}  // namespace
}  // namespace kvcodec
