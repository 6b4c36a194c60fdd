// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/result.h"

namespace kvcodec {

// How fast a link is at each time, and when its connections break: a pure function of the time
// since the link was made, so that the same trace gives the same link each time it is run.
//
// The text, one item a line, '#' begins a comment; rates are bits per second with K, M or G:
//   0    1G         from second 0 on one gigabit per second; the first rate is also that before it
//   3    100M       from second 3 on a tenth
//   5    0          an outage: nothing moves
//   6    1G
//   7    reset      all connections are reset
//   loop 10         after ten seconds it begins again
//   jitter 0.3 50   each 50 ms the rate gets a factor of its own between 0.7 and 1.3
//   latency 2.5     each way, in ms
//   seed 7          of jitter
class WireTrace {
 public:
  static WireTrace constant(double bits_per_second);
  // invalid_argument names the line.
  static Result<WireTrace> parse(std::string_view text, std::string_view where);
  static Result<WireTrace> load(const std::string& path);

  // In bytes per second, `at` seconds after the link was made.
  double rate(double at) const;
  // When `bytes` have crossed that begin to at `begin`; infinity where an outage never ends.
  double finish(double begin, double bytes) const;
  // How many resets there were until `at`, that moment included.
  uint64_t resets(double at) const;
  double latency_s() const { return latency_s_; }
  // The fastest it ever is, jitter aside.
  double peak() const;

 private:
  struct Piece {
    double begin = 0, bytes_per_second = 0;
  };
  // The next time after `at` when the rate may change.
  double next_change(double at) const;
  double jitter_factor(double at) const;

  std::vector<Piece> pieces_;
  std::vector<double> resets_;
  double loop_s_ = std::numeric_limits<double>::infinity();
  double jitter_ = 0, jitter_period_s_ = 0.05, latency_s_ = 0;
  uint64_t seed_ = 0;
};

}  // namespace kvcodec
