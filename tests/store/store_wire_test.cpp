// SPDX-License-Identifier: Apache-2.0
// Stores behind a wire that breaks, stops and changes bits: errors are allowed, wrong bytes never.
#include <atomic>
#include <random>
#include <thread>

#include "link/link_proxy.h"
#include "redis_server.h"
#include "s3_server.h"
#include "sealed_bytes.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

using std::chrono::milliseconds;

constexpr int kObjects = 8;
constexpr size_t kObjectBytes = 150000;
constexpr milliseconds kDeadline{5000};

struct Outcome {
  std::atomic<int> right{0}, wrong{0}, corrupt{0}, late{0}, failed{0};
};

// Threads that read and replace sealed objects.
void use_store(Store& store, int threads, int calls, Outcome& outcome) {
  std::vector<std::jthread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < calls; ++i) {
        const std::string name = fmt::format("n/{}", random() % kObjects);
        const auto began = std::chrono::steady_clock::now();
        if (random() % 8 == 0) {
          (void)store.put(name, make_sealed(name, random(), kObjectBytes));
        } else {
          std::vector<std::byte> bytes(kObjectBytes + 1);
          const auto n = store.get(name, bytes);
          if (n.ok()) {
            bytes.resize(*n);
            ++(sealed_version(name, bytes) ? outcome.right : outcome.wrong);
          } else {
            ++(n.error().code == ErrorCode::corrupt ? outcome.corrupt : outcome.failed);
          }
        }
        if (std::chrono::steady_clock::now() - began > 2 * kDeadline) ++outcome.late;
      }
    });
  }
}

// `key_file` gives the store its encryption, which is what finds changed bits.
void run_on(const std::string& uri, uint16_t direct_port, const WireFaults& faults, int threads,
            int calls) {
  const TempDir dir;
  write_text(dir / "key", std::string(64, '3'));
  std::filesystem::permissions(dir / "key", std::filesystem::perms::owner_read);
  const StoreOptions options{.deadline = kDeadline, .encryption_key_file = dir / "key"};
  const auto direct = open_store(fmt::format(fmt::runtime(uri), direct_port), options);
  ASSERT_TRUE(succeeds(direct));
  for (int i = 0; i < kObjects; ++i) {
    const std::string name = fmt::format("n/{}", i);
    ASSERT_TRUE(succeeds((*direct)->put(name, make_sealed(name, 0, kObjectBytes))));
  }
  const LinkProxy proxy({.to_port = direct_port, .faults = faults});
  const auto store = open_store(fmt::format(fmt::runtime(uri), proxy.port()), options);
  ASSERT_TRUE(succeeds(store));
  Outcome outcome;
  use_store(**store, threads, calls, outcome);
  EXPECT_EQ(outcome.wrong, 0);
  EXPECT_EQ(outcome.late, 0);
  EXPECT_GT(outcome.right, 0);
  EXPECT_GT(proxy.counts().resets + proxy.counts().flips, 10u) << "the wire was too good";
  std::cout << fmt::format(
      "{} right, {} wrong, {} found corrupt, {} failed, {} late; {} resets, {} flips, {} stops\n",
      outcome.right.load(), outcome.wrong.load(), outcome.corrupt.load(), outcome.failed.load(),
      outcome.late.load(), proxy.counts().resets.load(), proxy.counts().flips.load(),
      proxy.counts().stops.load());
}

constexpr WireFaults kBreaking{
    .seed = 5, .bytes_per_reset = 6e5, .bytes_per_stop = 5e5, .stop_ms = 2};
constexpr WireFaults kFlipping{
    .seed = 6, .bytes_per_reset = 2e6, .bytes_per_flip = 5e5, .bytes_per_stop = 1e6, .stop_ms = 2};

TEST(StoreWire, RedisGivesNoWrongBytes) {
  if (!RedisServer::missing().empty()) GTEST_SKIP() << RedisServer::missing();
  const RedisServer server;
  for (const WireFaults& faults : {kBreaking, kFlipping}) {
    run_on("redis://127.0.0.1:{}?part_bytes=64K&connections=8", server.port(), faults, 16, 40);
  }
}

TEST(StoreWire, S3GivesNoWrongBytes) {
  if (!S3Server::missing().empty()) GTEST_SKIP() << S3Server::missing();
  const S3Server server;
  for (const WireFaults& faults : {kBreaking, kFlipping}) {
    run_on("s3://bucket/w?endpoint=http%3A%2F%2F127.0.0.1%3A{}&connections=8", server.port(),
           faults, 8, 30);
  }
}

}  // namespace
}  // namespace kvcodec
