// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "kvcodec/store.h"

namespace kvcodec {

// When the bytes of transfers that share one link have crossed it. It keeps one absolute time, the
// end of what was reserved so far, and asks no clock: whoever sleeps too long for one piece finds
// the next one's deadline nearer, so errors do not add up. Thread-safe.
class LinkSchedule {
 public:
  using Clock = std::chrono::steady_clock;

  explicit LinkSchedule(double bits_per_second) : LinkSchedule(LinkTrace{{{1, bits_per_second}}}) {}
  // Requires a step of more than no bits per second, and of seconds above 0 all. The trace begins
  // when the link is first wanted.
  explicit LinkSchedule(LinkTrace trace) : trace_(std::move(trace)) {
    for (const auto& step : trace_.steps) {
      fastest_ = std::max(fastest_, step.bits_per_second);
      period_ += step.seconds;
    }
  }

  // Reserves the link for the next `bytes` of a transfer that began at `begin`; returns when they
  // have crossed. The link idles only where nobody who had begun wanted it.
  Clock::time_point reserve(Clock::time_point begin, uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    if (!origin_) origin_ = begin;
    free_at_ = std::max(free_at_, std::chrono::duration<double>(begin - *origin_).count());
    free_at_ = trace_.steps.size() == 1 ? free_at_ + 8 * static_cast<double>(bytes) / fastest_
                                        : cross(free_at_, 8 * static_cast<double>(bytes));
    return *origin_ + std::chrono::nanoseconds(std::llround(free_at_ * 1e9));
  }

  // Transfers take turns in slices of about a millisecond.
  uint64_t slice_bytes() const {
    return static_cast<uint64_t>(std::clamp(fastest_ / 8 * 1e-3, 1500.0, 1e9));
  }

 private:
  // When `bits` have crossed that begin at `at`, seconds of the trace.
  double cross(double at, double bits) const {
    double start = std::floor(at / period_) * period_;
    for (;; start += period_) {
      double from = start;
      for (const auto& step : trace_.steps) {
        const double end = from + step.seconds;
        if (at < end) {
          const double fits = (end - at) * step.bits_per_second;
          if (bits <= fits) return at + bits / step.bits_per_second;
          bits -= fits;
          at = end;
        }
        from = end;
      }
    }
  }

  LinkTrace trace_;
  double fastest_ = 0, period_ = 0;
  std::mutex mutex_;
  std::optional<Clock::time_point> origin_;
  double free_at_ = 0;  // seconds of the trace
};

}  // namespace kvcodec
