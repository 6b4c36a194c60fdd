// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvcodec {

// What goes wrong on a wire, by the number of bytes that have passed: so the same traffic meets the
// same faults, however fast it is. Distances are exponential with these means; 0: never.
struct WireFaults {
  uint64_t seed = 0;
  double bytes_per_reset = 0;  // both connections end with a reset
  double bytes_per_flip = 0;   // one bit is inverted
  double bytes_per_stop = 0;   // nothing moves on this connection for stop_ms
  uint32_t stop_ms = 20;
};

// The faults of one direction of one connection. One thread at a time.
class FaultyWire {
 public:
  FaultyWire(const WireFaults& faults, uint64_t connection, bool downstream);

  struct Verdict {
    size_t pass = 0;  // so many bytes go through; then, where it is fewer than there were...
    bool reset = false;
    bool stop = false;
    uint64_t flips = 0;
  };
  // Looks at the next bytes, changing them.
  Verdict pass(std::span<std::byte> bytes);

 private:
  uint64_t draw(double mean, uint64_t from);

  const WireFaults faults_;
  const uint64_t stream_;
  uint64_t draws_ = 0, at_ = 0;
  uint64_t next_reset_, next_flip_, next_stop_;
};

}  // namespace kvcodec
