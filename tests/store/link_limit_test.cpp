// SPDX-License-Identifier: Apache-2.0
// The arithmetic of limit_bandwidth with times given by the test; no clock, no waiting.
#include <cmath>
#include <thread>

#include "sealed_bytes.h"
#include "store/link_schedule.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

using Time = LinkSchedule::Clock::time_point;
using std::chrono::microseconds;
using std::chrono::milliseconds;

Time at(microseconds time) { return Time(std::chrono::seconds(1000)) + time; }

TEST(LinkSchedule, TakesTheTimeThatBytesNeed) {
  for (const double rate : {25e6, 1e9, 10e9}) {
    for (const uint64_t bytes : {10'000u, 1'000'000u, 10'000'000u}) {
      LinkSchedule link(rate);
      const std::chrono::duration<double> took =
          link.reserve(at(milliseconds(0)), bytes) - at(milliseconds(0));
      EXPECT_NEAR(took.count(), static_cast<double>(bytes) * 8 / rate, 1e-9);
    }
  }
}

TEST(LinkSchedule, SlicesAddUpWithoutError) {
  for (const double rate : {25e6, 3.33e8, 10e9}) {
    LinkSchedule link(rate);
    constexpr uint64_t kBytes = 10'000'000;
    Time end = at(milliseconds(0));
    for (uint64_t left = kBytes; left > 0;) {
      const uint64_t n = std::min(left, link.slice_bytes());
      end = link.reserve(at(milliseconds(0)), n);
      left -= n;
    }
    const std::chrono::duration<double> took = end - at(milliseconds(0));
    EXPECT_NEAR(took.count(), kBytes * 8 / rate, 1e-5);
  }
}

TEST(LinkSchedule, AnIdleLinkSavesNothingUp) {
  LinkSchedule link(8e6);  // a byte a microsecond
  EXPECT_EQ(link.reserve(at(microseconds(0)), 1000), at(microseconds(1000)));
  EXPECT_EQ(link.reserve(at(microseconds(50'000)), 1000), at(microseconds(51'000)));
}

// A transfer that began long ago and asks late gets the link from when it became free: whoever
// overslept catches up.
TEST(LinkSchedule, OversleepingIsMadeUpFor) {
  LinkSchedule link(8e6);
  EXPECT_EQ(link.reserve(at(microseconds(0)), 1000), at(microseconds(1000)));
  EXPECT_EQ(link.reserve(at(microseconds(0)), 1000), at(microseconds(2000)));
}

TEST(LinkSchedule, TransfersShareOneLink) {
  LinkSchedule link(8e6);
  const Time begin_a = at(microseconds(0)), begin_b = at(microseconds(500));
  EXPECT_EQ(link.reserve(begin_a, 1000), at(microseconds(1000)));
  EXPECT_EQ(link.reserve(begin_b, 1000), at(microseconds(2000)));
  EXPECT_EQ(link.reserve(begin_a, 1000), at(microseconds(3000)));
  EXPECT_EQ(link.reserve(begin_b, 1000), at(microseconds(4000)));
}

// A byte a microsecond for 1 ms, a tenth of that for 2 ms, nothing for 1 ms, and again.
TEST(LinkSchedule, FollowsATrace) {
  const LinkTrace trace{{{1e-3, 8e6}, {2e-3, 8e5}, {1e-3, 0}}};
  LinkSchedule link(trace);
  EXPECT_EQ(link.reserve(at(microseconds(0)), 1000), at(microseconds(1000)));
  EXPECT_EQ(link.reserve(at(microseconds(0)), 100), at(microseconds(2000)));
  EXPECT_EQ(link.reserve(at(microseconds(0)), 150), at(microseconds(4050))) << "over the outage";
  EXPECT_EQ(link.reserve(at(microseconds(0)), 1200 + 200), at(microseconds(8250)));
  EXPECT_EQ(link.reserve(at(microseconds(11'500)), 10), at(microseconds(12'010)))
      << "who comes in an outage waits for its end";
  LinkSchedule later(trace);  // the trace begins with the first transfer
  EXPECT_EQ(later.reserve(at(microseconds(2'500)), 1000), at(microseconds(3'500)));
}

TEST(LinkSchedule, SlicesLastAboutAMillisecond) {
  EXPECT_EQ(LinkSchedule(25e6).slice_bytes(), 3125u);
  EXPECT_EQ(LinkSchedule(10e9).slice_bytes(), 1'250'000u);
  EXPECT_EQ(LinkSchedule(1000).slice_bytes(), 1500u) << "no less than a packet";
}

// Never sooner than the link allows; how much later is the machine's load, not ours to assert.
TEST(LimitBandwidth, IsNeverFasterThanTheLink) {
  MemoryStore below;
  ASSERT_TRUE(succeeds(below.put("a", std::vector<std::byte>(50'000))));
  const auto store = limit_bandwidth(below, 100e6);
  const auto seconds_of = [](auto call) {
    const auto begin = LinkSchedule::Clock::now();
    call();
    return std::chrono::duration<double>(LinkSchedule::Clock::now() - begin).count();
  };
  std::vector<std::byte> out(50'000);
  EXPECT_GE(seconds_of([&] { EXPECT_TRUE(store->get("a", out).ok()); }), 0.004);
  EXPECT_GE(seconds_of([&] { EXPECT_TRUE(store->put("b", out).ok()); }), 0.004);
  const auto four_readers = [&] {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        std::vector<std::byte> mine(50'000);
        EXPECT_TRUE(store->get("a", mine).ok());
      });
    }
  };
  EXPECT_GE(seconds_of(four_readers), 0.016);
}

TEST(LimitBandwidth, RefusesARateThatIsNone) {
  MemoryStore below;
  ASSERT_TRUE(succeeds(below.put("a", to_bytes("x"))));
  std::vector<std::byte> out(1);
  for (const double rate : {0.0, -5.0, 0.5, std::nan(""), -HUGE_VAL}) {
    const auto store = limit_bandwidth(below, rate);
    EXPECT_TRUE(fails_with(store->get("a", out), ErrorCode::invalid_argument, "limit_bandwidth"));
    EXPECT_TRUE(fails_with(store->put("a", out), ErrorCode::invalid_argument, "limit_bandwidth"));
  }
  EXPECT_TRUE(succeeds(limit_bandwidth(below, HUGE_VAL)->get("a", out)));
}

TEST(LimitBandwidth, AMissTakesNoPartOfTheLink) {
  MemoryStore below;
  const auto store = limit_bandwidth(below, 1);  // 1000 bytes would take two hours
  std::vector<std::byte> out(1000);
  EXPECT_TRUE(fails_with(store->get("a", out), ErrorCode::not_found));
}

}  // namespace
}  // namespace kvcodec
