// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace kvcodec {

// Hands values from one thread to another, at most `capacity` of them waiting. Either side may
// close it: push then drops its value, pop gives what still waits and then nothing.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // Waits for room. False: closed, the value was dropped.
  bool push(T value) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return closed_ || values_.size() < capacity_; });
    if (closed_) return false;
    values_.push_back(std::move(value));
    filled_.notify_one();
    return true;
  }

  // Waits for a value, then takes all that wait for as long as more(values taken) says. None:
  // closed and empty.
  template <typename More>
  std::vector<T> pop_some(const More& more) {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return closed_ || !values_.empty(); });
    std::vector<T> taken;
    while (!values_.empty() && (taken.empty() || more(taken))) {
      taken.push_back(std::move(values_.front()));
      values_.pop_front();
    }
    room_.notify_all();
    return taken;
  }

  // Waits for a value. Nothing: closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return closed_ || !values_.empty(); });
    if (values_.empty()) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    room_.notify_one();
    return value;
  }

  void close() {
    std::scoped_lock lock(mutex_);
    closed_ = true;
    room_.notify_all();
    filled_.notify_all();
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable room_, filled_;
  std::deque<T> values_;
  bool closed_ = false;
};

}  // namespace kvcodec
