// SPDX-License-Identifier: Apache-2.0
#include "kvcodec/planner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace kvcodec {
namespace {

TEST(BandwidthEstimator, MeasuresOneOrManyTransfers) {
  for (size_t at_once : {1, 4, 16}) {
    BandwidthEstimator link;
    double now = 0;
    for (size_t i = 0; i < at_once; ++i) link.begin(now);
    for (int part = 0; part < 200; ++part) {
      now += 0.01;  // the link carries one after another, 1 MB in 10 ms
      link.deliver(now, 1000000);
      link.end(now);
      link.begin(now);
    }
    EXPECT_NEAR(link.bytes_per_second(now), 1e8, 1e6) << at_once;
  }
}

TEST(BandwidthEstimator, AnIdleLinkIsNotSlow) {
  BandwidthEstimator link;
  double now = 0;
  for (int i = 0; i < 50; ++i) {
    link.begin(now);
    now += 0.01;
    link.deliver(now, 1000000);
    link.end(now);
    now += 3;
  }
  EXPECT_NEAR(link.bytes_per_second(now), 1e8, 1e6);
  EXPECT_NEAR(link.bytes_per_second(now + 1000), 1e8, 1e6);
}

TEST(BandwidthEstimator, StartUpIsNotBelieved) {
  BandwidthEstimator link;
  EXPECT_EQ(link.bytes_per_second(0), 0);
  link.begin(0);
  EXPECT_EQ(link.bytes_per_second(1), 0);
  link.deliver(1, 1000);
  EXPECT_EQ(link.bytes_per_second(1), 0);
  link.deliver(1.001, 100000);
  EXPECT_GT(link.bytes_per_second(1.001), 0);
}

TEST(BandwidthEstimator, ADropShowsAtOnceAndABurstDoesNot) {
  BandwidthEstimator link;
  double now = 0;
  link.begin(now);
  for (int i = 0; i < 500; ++i) link.deliver(now += 0.01, 1000000);
  BandwidthEstimator burst = link;
  double then = now;
  for (int i = 0; i < 10; ++i) link.deliver(now += 0.1, 1000000);  // a tenth, for a second
  EXPECT_LT(link.bytes_per_second(now), 2e7);
  for (int i = 0; i < 10; ++i) burst.deliver(then += 0.001, 1000000);  // ten times, for 10 ms
  EXPECT_LT(burst.bytes_per_second(then), 1.2e8);
}

TEST(BandwidthEstimator, FallsWhileNothingComes) {
  BandwidthEstimator link;
  double now = 0;
  link.begin(now);
  for (int i = 0; i < 500; ++i) link.deliver(now += 0.01, 1000000);
  EXPECT_NEAR(link.bytes_per_second(now + 0.01), 1e8, 1e6) << "between two arrivals, as usual";
  EXPECT_LT(link.bytes_per_second(now + 0.5), 5e7);
  EXPECT_LT(link.bytes_per_second(now + 3), 2e6);
}

TEST(DecodeRates, NearestAndObserved) {
  DecodeRates rates = *DecodeRates::of("h200");
  EXPECT_NEAR(rates.bytes_per_second({Tier::int8, "", 0}), 4.025e9, 1);
  EXPECT_NEAR(rates.bytes_per_second({Tier::int8, "", 512}), 4.025e9, 1) << "of the tier";
  for (int i = 0; i < 50; ++i) rates.observe({Tier::int8, "", 512}, 1000000, 0.001);
  EXPECT_NEAR(rates.bytes_per_second({Tier::int8, "", 512}), 1e9, 1e6);
  EXPECT_NEAR(rates.bytes_per_second({Tier::int8, "", 0}), 4.025e9, 1) << "not touched";
  EXPECT_EQ(DecodeRates().bytes_per_second({}), 0);
}

// Finest first: 8 MB decoded in 10 ms, 4 MB in 30 ms, 1 MB in 50 ms.
const std::vector<RenditionChoice> kChoices = {
    {8000000, 8e6, 0.01}, {4000000, 4e6, 0.03}, {1000000, 1e6, 0.05}};

PipelineLoad load_of(double rate, size_t after, double backlog = 0) {
  PipelineLoad load;
  load.bytes_per_second = rate;
  load.chunks_after = after;
  load.decode_backlog = backlog;
  return load;
}

TEST(Planner, SlowLinksTakeSmallObjectsAndFastOnesFineTiers) {
  EXPECT_EQ(plan_chunk_fetch(kChoices, load_of(1e6, 10))->choice, 2u);
  EXPECT_EQ(plan_chunk_fetch(kChoices, load_of(1e11, 10))->choice, 0u);
}

TEST(Planner, QualityRisesWhereItCostsNoTime) {
  // All decode alike, and the decoder is behind: the finest that keeps up is taken.
  const std::vector<RenditionChoice> same = {
      {8000000, 8e6, 0.05}, {4000000, 4e6, 0.05}, {1000000, 1e6, 0.05}};
  EXPECT_EQ(plan_chunk_fetch(same, load_of(1e9, 10, 0.2))->choice, 0u);
  EXPECT_EQ(plan_chunk_fetch(same, load_of(6e7, 10, 0.2))->choice, 1u);
  EXPECT_EQ(plan_chunk_fetch(same, load_of(1e7, 10, 0.2))->choice, 2u);
  EXPECT_EQ(plan_chunk_fetch(same, load_of(1e13, 10))->choice, 0u) << "at once";
}

TEST(Planner, TheFirstChunkFillsThePipeline) {
  const std::vector<RenditionChoice> same = {{8000000, 8e6, 0.05}, {1000000, 1e6, 0.05}};
  EXPECT_EQ(plan_chunk_fetch(same, load_of(2e8, 10))->choice, 1u) << "the decoder waits";
  EXPECT_EQ(plan_chunk_fetch(same, load_of(2e8, 10, 0.1))->choice, 0u) << "it is busy";
}

TEST(Planner, WhatIsMissingIsNotChosen) {
  std::vector<RenditionChoice> choices = kChoices;
  choices[0].bytes = 0;
  EXPECT_EQ(plan_chunk_fetch(choices, load_of(1e11, 3))->choice, 1u);
  choices[1].bytes = choices[2].bytes = 0;
  EXPECT_FALSE(plan_chunk_fetch(choices, load_of(1e11, 3)).has_value());
}

// Plans a whole prefix chunk by chunk on a constant link; returns when the last is decoded.
double simulate(std::span<const RenditionChoice> choices, double rate, size_t chunks,
                std::optional<size_t> fixed) {
  double link = 0, decoder = 0;
  for (size_t i = 0; i < chunks; ++i) {
    PipelineLoad load = load_of(rate, chunks - i - 1, std::max(0.0, decoder - link));
    const size_t r = fixed ? *fixed : plan_chunk_fetch(choices, load)->choice;
    link += static_cast<double>(choices[r].bytes) / rate;
    decoder = std::max(decoder, link) + choices[r].decode_seconds;
  }
  return decoder;
}

// Property: never clearly worse than any fixed choice, and better where a mixture is.
TEST(Planner, IsNoWorseThanTheBestFixedChoice) {
  std::mt19937 random(3);
  const auto uniform = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<>(std::log(low), std::log(high))(random));
  };
  double most_gained = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<RenditionChoice> choices(1 + random() % 5);
    for (auto& choice : choices) {
      choice.bytes = static_cast<uint64_t>(uniform(1e5, 1e8));
      choice.mean_bytes = static_cast<double>(choice.bytes);
      choice.decode_seconds = uniform(1e-3, 1);
    }
    const double rate = uniform(1e6, 1e10);
    const size_t chunks = 1 + random() % 64;
    double best = 1e300;
    for (size_t r = 0; r < choices.size(); ++r)
      best = std::min(best, simulate(choices, rate, chunks, r));
    const double planned = simulate(choices, rate, chunks, std::nullopt);
    ASSERT_LE(planned, best * 1.02) << "round " << round;
    most_gained = std::max(most_gained, best / planned);
  }
  EXPECT_GT(most_gained, 1.2) << "mixtures should pay";
}

TEST(Split, OneAfterTheOtherIsAllOrNothing) {
  // Attention makes later tokens dearer, so where fetching pays at all it pays to the end.
  for (double rate : {500.0, 2000.0, 20000.0}) {
    const PrefillModel prefill{5000, 1e-8};
    const auto split = split_prefix(32768, 256, prefill, rate, 0.01, false);
    EXPECT_EQ(split.order, PrefixSplit::Order::fetch_then_compute);
    EXPECT_TRUE(split.at == 0 || split.at == 32768) << split.at;
  }
}

TEST(Split, TogetherTheyMeetInTheMiddle) {
  const PrefillModel prefill{5000, 0};
  const auto split = split_prefix(10240, 256, prefill, 5000, 0, true);
  EXPECT_EQ(split.order, PrefixSplit::Order::compute_and_fetch);
  EXPECT_EQ(split.at, 5120u);
  EXPECT_NEAR(split.seconds, 1.024, 1e-9);
  // Early tokens are cheap to compute: with attention more than half is computed.
  const auto attention = split_prefix(10240, 256, {10000, 3e-8}, 5000, 0, true);
  EXPECT_GT(attention.at, 5120u);
}

// Against every split there is.
TEST(Split, IsTheBestOfAll) {
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    const uint32_t tokens = 1 + below(5000), step = 1 + below(600);
    const PrefillModel prefill{1.0 + below(10000), below(3) * 1e-7};
    const double rate = 1.0 + below(10000), latency = below(3) * 0.1;
    const bool overlap = round % 2 == 0;
    double best = 1e300;
    for (uint32_t at = 0;; at = std::min(tokens, at + step)) {
      const auto fetch = [&](uint32_t n) { return n > 0 ? latency + n / rate : 0.0; };
      best = std::min(best, fetch(at) + prefill.seconds(at, tokens));
      if (overlap) best = std::min(best, std::max(prefill.seconds(0, at), fetch(tokens - at)));
      if (at == tokens) break;
    }
    EXPECT_NEAR(split_prefix(tokens, step, prefill, rate, latency, overlap).seconds, best,
                1e-12 + best * 1e-12);
  }
}

}  // namespace
}  // namespace kvcodec
