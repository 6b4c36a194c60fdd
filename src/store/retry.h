// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "kvcodec/store.h"

namespace kvcodec {

// When a call must be over. Value type.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // `duration` from now; never, where it is 0.
  static Deadline in(std::chrono::milliseconds duration) {
    return Deadline(duration.count() == 0 ? Clock::time_point::max() : Clock::now() + duration);
  }
  Deadline sooner(std::chrono::milliseconds duration) const {
    return Deadline(std::min(at_, Clock::now() + duration));
  }
  bool over() const { return Clock::now() >= at_; }
  bool endless() const { return at_ == Clock::time_point::max(); }
  Clock::time_point at() const { return at_; }
  // At least 0, at most `most`, rounded up, so that waiting this long is enough.
  std::chrono::milliseconds remaining(
      std::chrono::milliseconds most = std::chrono::hours(24)) const {
    if (endless()) return most;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now());
    return std::clamp(left, std::chrono::milliseconds(0), most);
  }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

// The pauses between the attempts of one call: full jitter over a doubling bound (Brooker,
// "Exponential backoff and jitter", 2015), so that callers who failed together do not return
// together. Not thread-safe: one belongs to one call.
class Retry {
 public:
  explicit Retry(Deadline deadline) : deadline_(deadline) {}

  // Sleeps before the next attempt, at least `at_least`. False, at once, where the deadline or the
  // number of attempts leaves none.
  bool wait(std::chrono::milliseconds at_least = std::chrono::milliseconds(0));
  int attempts() const { return attempts_; }
  // `last` as unavailable, with the attempts and the time they took.
  Error give_up(const Error& last) const;

 private:
  static constexpr int kAttemptsWithoutDeadline = 10;
  static constexpr std::chrono::milliseconds kFirst{20}, kMost{2000};

  Deadline deadline_;
  std::chrono::milliseconds bound_ = kFirst;
  int attempts_ = 1;
  const Deadline::Clock::time_point began_ = Deadline::Clock::now();
};

}  // namespace kvcodec
