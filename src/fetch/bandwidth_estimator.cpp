// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kvcodec/planner.h"

namespace kvcodec {

void BandwidthEstimator::Average::add(double busy, double delivered) {
  const double kept = std::exp2(-busy / half_life);
  bytes = bytes * kept + delivered;
  seconds = seconds * kept + busy;
  arrivals = arrivals * kept + 1;
}

// `waiting`: busy time since the last bytes. What lies between two arrivals as a rule says nothing;
// what is beyond that counts as time in which nothing was carried.
double BandwidthEstimator::Average::rate(double waiting) const {
  if (bytes <= 0) return 0;
  const double beyond = std::max(0.0, waiting - 1.5 * seconds / arrivals);
  const double kept = std::exp2(-beyond / half_life);
  return bytes * kept / std::max(seconds * kept + beyond, 1e-9);
}

void BandwidthEstimator::advance(double now) {
  if (active_ > 0) waiting_ += std::max(0.0, now - at_);
  at_ = std::max(at_, now);
}

void BandwidthEstimator::begin(double now) {
  advance(now);
  ++active_;
}

void BandwidthEstimator::deliver(double now, uint64_t bytes) {
  advance(now);
  total_ += bytes;
  for (Average* average : {&fast_, &slow_}) average->add(waiting_, static_cast<double>(bytes));
  waiting_ = 0;
}

void BandwidthEstimator::end(double now) {
  advance(now);
  if (active_ > 0) --active_;
}

double BandwidthEstimator::bytes_per_second(double now) const {
  if (total_ < kLeastBytes) return 0;
  const double waiting = waiting_ + (active_ > 0 ? std::max(0.0, now - at_) : 0.0);
  return std::min(fast_.rate(waiting), slow_.rate(waiting));
}

}  // namespace kvcodec
