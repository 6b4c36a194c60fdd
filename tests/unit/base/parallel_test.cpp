// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <set>
#include <thread>
#include <vector>

namespace kvcodec {
namespace {

TEST(ResolveThreads, TakesThePositiveAndReplacesTheRest) {
  EXPECT_EQ(resolve_threads(1), 1);
  EXPECT_EQ(resolve_threads(7), 7);
  EXPECT_GE(resolve_threads(0), 1);
  EXPECT_EQ(resolve_threads(-3), resolve_threads(0));
}

TEST(ParallelFor, CallsEveryIndexOnce) {
  for (const int threads : {0, 1, 2, 5, 64}) {
    for (const size_t n : {0u, 1u, 2u, 3u, 1000u}) {
      std::vector<std::atomic<int>> calls(n);
      parallel_for(n, threads, [&](size_t i, int) { ++calls[i]; });
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(calls[i], 1) << i << " of " << n;
    }
  }
}

TEST(ParallelFor, AWorkerRunsOneBodyAtATime) {
  constexpr int kThreads = 5;
  std::vector<std::atomic<int>> running(kThreads);
  std::atomic<int> bad{0};
  parallel_for(500, kThreads, [&](size_t, int worker) {
    if (worker < 0 || worker >= kThreads) {
      ++bad;
      return;
    }
    if (++running[worker] != 1) ++bad;
    std::this_thread::yield();
    --running[worker];
  });
  EXPECT_EQ(bad, 0);
}

// Bodies that wait for each other end only where all workers run at once.
TEST(ParallelFor, UsesAsManyThreadsAsAsked) {
  constexpr int kThreads = 4;
  std::atomic<int> arrived{0};
  std::vector<std::thread::id> ids(kThreads);
  parallel_for(kThreads, kThreads, [&](size_t i, int) {
    ids[i] = std::this_thread::get_id();
    ++arrived;
    while (arrived < kThreads) std::this_thread::yield();
  });
  EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), size_t{kThreads});
  EXPECT_TRUE(std::set(ids.begin(), ids.end()).contains(std::this_thread::get_id()))
      << "the caller works too";
}

TEST(ParallelFor, OneThreadMeansTheCallerInOrder) {
  std::vector<size_t> order;
  parallel_for(20, 1, [&](size_t i, int worker) {
    EXPECT_EQ(worker, 0);
    order.push_back(i);
  });
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
  EXPECT_EQ(order.size(), 20u);
}

TEST(ParallelFor, GivesTheCallerWhatABodyThrows) {
  for (int threads : {1, 3}) {
    std::atomic<int> calls{0};
    EXPECT_THROW(parallel_for(1000, threads,
                              [&](size_t i, int) {
                                ++calls;
                                if (i == 5) throw std::bad_alloc();
                              }),
                 std::bad_alloc);
    if (threads == 1) {
      EXPECT_EQ(calls, 6) << "nothing more was begun";
    }
  }
}

TEST(ParallelFor, Nests) {
  std::atomic<int> calls{0};
  parallel_for(4, 2, [&](size_t, int) { parallel_for(5, 2, [&](size_t, int) { ++calls; }); });
  EXPECT_EQ(calls, 20);
}

}  // namespace
}  // namespace kvcodec
