// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include "hevc/encoder.h"

namespace kvcodec::hevc {

// Jobs that several workers take one after another.
class JobQueue {
 public:
  explicit JobQueue(std::span<EncodeJob* const> jobs) : jobs_(jobs) {}
  // Null when there are no more.
  EncodeJob* take() {
    const size_t i = next_.fetch_add(1, std::memory_order_relaxed);
    return i < jobs_.size() ? jobs_[i] : nullptr;
  }

 private:
  const std::span<EncodeJob* const> jobs_;
  std::atomic<size_t> next_{0};
};

}  // namespace kvcodec::hevc
