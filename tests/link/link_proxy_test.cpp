// SPDX-License-Identifier: Apache-2.0
#include "link/link_proxy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "store/net_stream.h"
#include "store/scripted_server.h"

namespace kvcodec {
namespace {

using std::chrono::milliseconds;

WireTrace trace_of(std::string_view text) {
  auto trace = WireTrace::parse(text, "test");
  EXPECT_TRUE(trace.ok()) << trace.error().message;
  return *trace;
}

TEST(WireTrace, FollowsItsRates) {
  const WireTrace trace = trace_of("# a comment\n0 8M\n2 800K # a tenth\n4 0\n5 8M\n\nloop 6\n");
  EXPECT_DOUBLE_EQ(trace.rate(0), 1e6);
  EXPECT_DOUBLE_EQ(trace.rate(1.999), 1e6);
  EXPECT_DOUBLE_EQ(trace.rate(2), 1e5);
  EXPECT_DOUBLE_EQ(trace.rate(4.5), 0);
  EXPECT_DOUBLE_EQ(trace.rate(11.5), 1e6);
  EXPECT_DOUBLE_EQ(trace.rate(14.5), 1e5);
  EXPECT_DOUBLE_EQ(trace.finish(0, 5e5), 0.5);
  EXPECT_DOUBLE_EQ(trace.finish(1, 1.05e6), 2.5) << "over a change";
  EXPECT_DOUBLE_EQ(trace.finish(3.5, 6e4), 5.01) << "over an outage";
  EXPECT_DOUBLE_EQ(trace.finish(0, 3.2e6), 6.0) << "all of a round";
  EXPECT_DOUBLE_EQ(trace.finish(0, 6.4e6), 12.0);
  EXPECT_DOUBLE_EQ(WireTrace::constant(40e9).finish(3, 5e9), 4.0);
  EXPECT_TRUE(std::isinf(trace_of("0 8M\n1 0\n").finish(0, 2e6)));
  EXPECT_TRUE(std::isinf(trace_of("0 0\nloop 1\n").finish(0, 1)));
}

TEST(WireTrace, JittersTheSameEachTime) {
  const WireTrace one = trace_of("0 8M\njitter 0.3 50\nseed 7"), same = one,
                  other = trace_of("0 8M\njitter 0.3 50\nseed 8");
  double sum = 0, least = 2e6, most = 0, different = 0;
  for (int i = 0; i < 1000; ++i) {
    const double at = i * 0.05 + 0.01;
    EXPECT_EQ(one.rate(at), same.rate(at));
    EXPECT_EQ(one.rate(at), one.rate(at + 0.03)) << "within a period";
    different += one.rate(at) == other.rate(at) ? 0 : 1;
    sum += one.rate(at);
    least = std::min(least, one.rate(at));
    most = std::max(most, one.rate(at));
  }
  EXPECT_NEAR(sum / 1000, 1e6, 2e4);
  EXPECT_GE(least, 0.7e6);
  EXPECT_LT(least, 0.72e6);
  EXPECT_LE(most, 1.3e6);
  EXPECT_GT(most, 1.28e6);
  EXPECT_GT(different, 990);
  // What has crossed adds up, however it is cut.
  double at = 0;
  for (int i = 0; i < 1000; ++i) at = one.finish(at, 1000);
  EXPECT_NEAR(at, one.finish(0, 1e6), 1e-9);
}

TEST(WireTrace, CountsResets) {
  const WireTrace trace = trace_of("0 1G\n1 reset\n2.5 reset\nloop 4\nlatency 2.5");
  EXPECT_DOUBLE_EQ(trace.latency_s(), 0.0025);
  EXPECT_EQ(trace.resets(0.99), 0u);
  EXPECT_EQ(trace.resets(1), 1u);
  EXPECT_EQ(trace.resets(3), 2u);
  EXPECT_EQ(trace.resets(5.5), 3u);
}

TEST(WireTrace, RefusesWhatIsNoTrace) {
  for (const char* text : {"", "# nothing", "loop 5", "0", "0 1X", "0 -1G", "x 1G", "1 1G\n1 2G",
                           "2 1G\n1 2G", "0 1G\nloop 0", "0 1G\n5 2G\nloop 5", "0 1G\njitter 1 50",
                           "0 1G\njitter 0.5 0", "0 1G\nlatency x", "0 1G 2G", "0 inf", "nan 1G"}) {
    const auto trace = WireTrace::parse(text, "test");
    EXPECT_FALSE(trace.ok()) << text;
    if (!trace.ok()) {
      EXPECT_NE(trace.error().message.find("test"), std::string::npos);
    }
  }
  EXPECT_FALSE(WireTrace::load("/nonexistent").ok());
}

TEST(WireFaults, AreTheSameForTheSameBytes) {
  const WireFaults faults{.seed = 3, .bytes_per_reset = 1e5, .bytes_per_flip = 1e3};
  const auto run = [&](size_t step, uint64_t connection) {
    FaultyWire wire(faults, connection, true);
    std::vector<std::byte> all(1 << 20);
    size_t at = 0;
    for (;;) {
      const auto verdict = wire.pass(std::span(all).subspan(at, step));
      at += verdict.pass;
      if (verdict.reset || at + step > all.size()) break;
    }
    all.resize(at);
    return all;
  };
  EXPECT_EQ(run(100, 0), run(7777, 0)) << "however they are cut";
  EXPECT_NE(run(100, 0), run(100, 1));
  double total = 0, flipped = 0;
  for (uint64_t connection = 0; connection < 200; ++connection) {
    const auto bytes = run(1000, connection);
    total += static_cast<double>(bytes.size());
    for (const std::byte b : bytes) flipped += b == std::byte{0} ? 0 : 1;
  }
  EXPECT_NEAR(total / 200, 1e5, 3e4);
  EXPECT_NEAR(total / flipped, 1e3, 1e2);
}

// A server that sends back what it gets.
ScriptedServer::Script echo() {
  return [](ScriptedServer::Peer& peer) {
    for (std::string line; !(line = peer.read_until("\n")).empty();) {
      if (!peer.send(line)) return;
    }
  };
}

// Sends `text` and a newline and reads as much; the bytes that came.
std::string exchange(uint16_t port, std::string text) {
  const Deadline deadline = Deadline::in(milliseconds(20000));
  auto stream = NetStream::connect({"127.0.0.1", port, nullptr}, deadline, milliseconds(20000));
  if (!stream.ok()) return "no connection";
  text += '\n';
  std::string back(text.size(), '\0');
  size_t got = 0;
  // In pieces, so that neither side waits for the other.
  for (size_t at = 0; at < text.size(); at += 4096) {
    const auto piece =
        std::as_bytes(std::span(text)).subspan(at, std::min<size_t>(4096, text.size() - at));
    if (!stream->write_all(piece, deadline).ok()) return "cut";
  }
  while (got < back.size()) {
    const auto n =
        stream->read_some(std::as_writable_bytes(std::span(back)).subspan(got), deadline);
    if (!n.ok()) return "cut";
    got += *n;
  }
  back.pop_back();
  return back;
}

TEST(LinkProxy, ForwardsUnchangedAndNoFasterThanItsLink) {
  ScriptedServer server(echo());
  const LinkProxy proxy({.to_port = server.port(), .trace = trace_of("0 80M\nlatency 5")});
  const std::string text(200000, 'x');
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(exchange(proxy.port(), text), text);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  // Up and down one after the other, as the server waits for the end: 20 ms each and 5 ms twice.
  EXPECT_GE(took.count(), 0.049);
  EXPECT_EQ(proxy.counts().bytes_up, text.size() + 1);
  EXPECT_EQ(proxy.counts().bytes_down, text.size() + 1);
}

TEST(LinkProxy, SharesItsLinkAmongConnections) {
  ScriptedServer server(echo());
  const LinkProxy proxy({.to_port = server.port(), .trace = WireTrace::constant(80e6)});
  const std::string text(100000, 'x');
  const auto began = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] { EXPECT_EQ(exchange(proxy.port(), text), text); });
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took.count(), 0.04) << "four times 10 ms up, at least";
  EXPECT_EQ(proxy.counts().connections, 4u);
}

TEST(LinkProxy, BreaksConnections) {
  ScriptedServer server(echo());
  const LinkProxy by_bytes({.to_port = server.port(), .faults = {.bytes_per_reset = 10000}});
  int cut = 0;
  for (int i = 0; i < 10; ++i) cut += exchange(by_bytes.port(), std::string(20000, 'x')) == "cut";
  EXPECT_GT(cut, 5);
  EXPECT_GE(by_bytes.counts().resets, static_cast<uint64_t>(cut));
  // By time: an outage until the reset.
  const LinkProxy by_time(
      {.to_port = server.port(), .trace = trace_of("0 0\n0.05 reset\n0.06 1G")});
  EXPECT_EQ(exchange(by_time.port(), "x"), "cut");
  const LinkProxy nowhere({.to_port = 1});
  EXPECT_EQ(exchange(nowhere.port(), "x"), "cut");
}

TEST(LinkProxy, FlipsAndStops) {
  ScriptedServer server(echo());
  const LinkProxy proxy(
      {.to_port = server.port(),
       .faults = {.bytes_per_flip = 30000, .bytes_per_stop = 20000, .stop_ms = 1}});
  // 'p' and 'P' differ from a newline in more than a bit.
  const std::string text(100000, 'p'), back = exchange(proxy.port(), text);
  ASSERT_EQ(back.size(), text.size());
  int different = 0;
  for (const char c : back) different += c == 'p' ? 0 : 1;
  EXPECT_EQ(static_cast<uint64_t>(different), proxy.counts().flips);
  EXPECT_GT(different, 0);
  EXPECT_GT(proxy.counts().stops, 0u);
}

}  // namespace
}  // namespace kvcodec
