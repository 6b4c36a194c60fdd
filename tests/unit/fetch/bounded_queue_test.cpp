// SPDX-License-Identifier: Apache-2.0
#include "fetch/bounded_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace kvcodec {
namespace {

TEST(BoundedQueue, KeepsOrderAndBound) {
  BoundedQueue<int> queue(3);
  std::atomic<int> pushed{0}, popped{0}, most{0};
  std::jthread producer([&] {
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(queue.push(i));
      const int waiting = ++pushed - popped;
      int seen = most;
      while (waiting > seen && !most.compare_exchange_weak(seen, waiting)) {
      }
    }
    queue.close();
  });
  int expected = 0;
  while (auto value = queue.pop()) {
    ++popped;
    EXPECT_EQ(*value, expected++);
  }
  EXPECT_EQ(expected, 1000);
  EXPECT_LE(most, 3 + 1);  // the push that has just returned may not be counted as popped yet
}

TEST(BoundedQueue, CloseWakesBothSides) {
  BoundedQueue<int> empty(1);
  std::jthread consumer([&] { EXPECT_FALSE(empty.pop().has_value()); });
  BoundedQueue<int> full(1);
  ASSERT_TRUE(full.push(1));
  std::jthread producer([&] { EXPECT_FALSE(full.push(2)); });
  empty.close();
  full.close();
  consumer.join();
  producer.join();
  EXPECT_EQ(full.pop(), 1);  // what was in before the close is not lost
  EXPECT_FALSE(full.pop().has_value());
  EXPECT_FALSE(full.push(3));
}

TEST(BoundedQueue, TakesSomeAtOnce) {
  BoundedQueue<int> queue(5);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(queue.push(i));
  const auto below = [](size_t n) {
    return [n](const std::vector<int>& taken) { return taken.size() < n; };
  };
  EXPECT_EQ(queue.pop_some(below(3)), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(queue.pop_some(below(0)), (std::vector<int>{3}));  // one at least
  ASSERT_TRUE(queue.push(5));
  queue.close();
  EXPECT_EQ(queue.pop_some(below(9)), (std::vector<int>{4, 5}));
  EXPECT_TRUE(queue.pop_some(below(9)).empty());
}

TEST(BoundedQueue, MovesValues) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  ASSERT_TRUE(queue.push(std::make_unique<int>(7)));
  EXPECT_EQ(**queue.pop(), 7);
}

}  // namespace
}  // namespace kvcodec
