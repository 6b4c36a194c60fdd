// SPDX-License-Identifier: Apache-2.0
#include "store/retry.h"

#include <random>
#include <thread>

#include "base/error.h"

namespace kvcodec {

bool Retry::wait(std::chrono::milliseconds at_least) {
  thread_local std::minstd_rand random{std::random_device{}()};
  if (deadline_.endless() && attempts_ >= kAttemptsWithoutDeadline) return false;
  std::uniform_int_distribution<int64_t> pick(0, bound_.count());
  const auto pause = std::max(std::chrono::milliseconds(pick(random)), at_least);
  if (!deadline_.endless() && Deadline::Clock::now() + pause >= deadline_.at()) return false;
  std::this_thread::sleep_for(pause);
  bound_ = std::min(bound_ * 2, kMost);
  ++attempts_;
  return true;
}

Error Retry::give_up(const Error& last) const {
  const std::chrono::duration<double> took = Deadline::Clock::now() - began_;
  return make_error(ErrorCode::unavailable, "{} (attempt {}, {:.1f} s after the first)",
                    last.message, attempts_, took.count());
}

}  // namespace kvcodec
