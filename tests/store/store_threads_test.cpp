// SPDX-License-Identifier: Apache-2.0
// What every Store promises to several threads.
#include <atomic>
#include <random>
#include <thread>

#include "base/error.h"
#include "sealed_bytes.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

using StoreThreads = EveryStore;
INSTANTIATE_TEST_SUITE_P(All, StoreThreads, testing::ValuesIn(store_kinds()), kind_name);

// Kinds that promise more than the others.
using StoreRemovalThreads = EveryStore;
INSTANTIATE_TEST_SUITE_P(All, StoreRemovalThreads, testing::ValuesIn(once_removing_kinds()),
                         kind_name);
using StoreBoundThreads = EveryStore;
INSTANTIATE_TEST_SUITE_P(All, StoreBoundThreads, testing::ValuesIn(bounded_kinds()), kind_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreBoundThreads);

constexpr int kThreads = 4;
constexpr size_t kMaxSize = 20000;

// Runs body(i) for i in [0, kThreads) at once.
template <typename Body>
void run_threads(Body body) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(body, i);
}

TEST_P(StoreThreads, ReadersSeeWholeObjectsWhileWritersReplaceThem) {
  Store& store = open();
  // Readers may be done before the first writer begins.
  for (const char* name : {"shared/0", "shared/1", "shared/2"}) {
    ASSERT_TRUE(succeeds(store.put(name, make_sealed(name, 0, kMaxSize))));
  }
  std::atomic<int> torn{0}, read{0}, failed{0};
  run_threads([&](int thread) {
    std::mt19937 random(thread);
    for (int i = 0; i < 60 / GetParam().slowness; ++i) {
      const std::string name = fmt::format("shared/{}", random() % 3);
      if (thread % 2 == 0) {
        const auto bytes = make_sealed(name, static_cast<uint64_t>(i), random() % kMaxSize);
        if (!store.put(name, bytes).ok()) ++failed;
      } else {
        for (int j = 0; j < 5; ++j) {
          const auto bytes = get_object(store, name, kMaxSize);
          if (bytes.ok()) {
            ++read;
            if (!sealed_version(name, *bytes)) ++torn;
          } else if (bytes.error().code != ErrorCode::not_found) {
            ++failed;
          }
        }
      }
    }
  });
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(failed, 0);
  for (const auto& name : names_of(store)) {
    EXPECT_TRUE(sealed_version(name, *get_object(store, name, kMaxSize)));
  }
  EXPECT_EQ(names_of(store).size(), 3u);
  EXPECT_GT(read, 0);
}

TEST_P(StoreThreads, WritersOfDifferentNamesDoNotDisturbEachOther) {
  Store& store = open();
  std::atomic<int> failed{0};
  run_threads([&](int thread) {
    for (int i = 0; i < 40; ++i) {
      const std::string name = std::to_string(thread) + "/" + std::to_string(i % 10);
      const auto bytes = make_sealed(name, static_cast<uint64_t>(i), 100);
      const bool good = store.put(name, bytes).ok();
      const auto back = get_object(store, name, 1000);
      if (!good || !back.ok() || *back != bytes) ++failed;
      if (i >= 30 && i % 2 == 0 && !store.remove(name).ok()) ++failed;
    }
  });
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(names_of(store).size(), 5u * kThreads);
}

TEST_P(StoreRemovalThreads, RemovalHappensOnce) {
  Store& store = open();
  for (int round = 0; round < 20 / GetParam().slowness; ++round) {
    ASSERT_TRUE(succeeds(store.put("a", to_bytes("x"))));
    std::atomic<int> removed{0}, absent{0};
    run_threads([&](int) {
      const Status status = store.remove("a");
      if (status.ok()) ++removed;
      if (!status.ok() && status.error().code == ErrorCode::not_found) ++absent;
    });
    EXPECT_EQ(removed, 1);
    EXPECT_EQ(absent, kThreads - 1);
  }
}

TEST_P(StoreBoundThreads, StaysWithinItsBound) {
  constexpr uint64_t kBound = 50000;
  Store& store = open(kBound);
  std::atomic<int> failed{0};
  run_threads([&](int thread) {
    std::mt19937 random(thread);
    for (int i = 0; i < 60; ++i) {
      const std::string name = fmt::format("n{}", random() % 30);
      if (!store.put(name, make_sealed(name, 0, random() % kMaxSize)).ok()) ++failed;
      const std::string other = fmt::format("n{}", random() % 30);
      const auto bytes = get_object(store, other, kMaxSize);
      if (bytes.ok() ? !sealed_version(other, *bytes)
                     : bytes.error().code != ErrorCode::not_found) {
        ++failed;
      }
    }
  });
  EXPECT_EQ(failed, 0);
  uint64_t total = 0;
  const auto objects = store.list();
  ASSERT_TRUE(succeeds(objects));
  for (const auto& object : *objects) total += object.bytes;
  EXPECT_LE(total, kBound);
  EXPECT_GT(total, kBound - kMaxSize) << "more was evicted than needed";
}

TEST_P(StoreThreads, CollectGarbageRunsBesideReadersAndWriters) {
  Store& store = open();
  std::atomic<int> failed{0};
  run_threads([&](int thread) {
    std::mt19937 random(thread);
    for (int i = 0; i < 30 / GetParam().slowness; ++i) {
      const std::string name = fmt::format("n{}", random() % 10);
      if (thread == 0) {
        if (!collect_garbage(store, 2000).ok()) ++failed;
        continue;
      }
      if (!store.put(name, make_sealed(name, 0, 500)).ok()) ++failed;
      const auto bytes = get_object(store, name, kMaxSize);
      if (bytes.ok() ? !sealed_version(name, *bytes) : bytes.error().code != ErrorCode::not_found) {
        ++failed;
      }
    }
  });
  EXPECT_EQ(failed, 0);
  ASSERT_TRUE(succeeds(collect_garbage(store, 2000)));
  EXPECT_LE(names_of(store).size(), 4u);
}

}  // namespace
}  // namespace kvcodec
