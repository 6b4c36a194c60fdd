// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <mutex>

namespace kvcodec {

// When the bytes of transfers that share one link have crossed it. It keeps one absolute time, the
// end of what was reserved so far, and asks no clock: whoever sleeps too long for one piece finds
// the next one's deadline nearer, so errors do not add up. Thread-safe.
class LinkSchedule {
 public:
  using Clock = std::chrono::steady_clock;

  explicit LinkSchedule(double bits_per_second) : ns_per_byte_(8e9 / bits_per_second) {}

  // Reserves the link for the next `bytes` of a transfer that began at `begin`; returns when they
  // have crossed. The link idles only where nobody who had begun wanted it.
  Clock::time_point reserve(Clock::time_point begin, uint64_t bytes) {
    const auto need =
        std::chrono::nanoseconds(std::llround(ns_per_byte_ * static_cast<double>(bytes)));
    const std::lock_guard guard(mutex_);
    free_at_ = std::max(free_at_, begin) + need;
    return free_at_;
  }

  // Transfers take turns in slices of about a millisecond.
  uint64_t slice_bytes() const {
    return static_cast<uint64_t>(std::clamp(1e6 / ns_per_byte_, 1500.0, 1e9));
  }

 private:
  const double ns_per_byte_;
  std::mutex mutex_;
  Clock::time_point free_at_{};
};

}  // namespace kvcodec
