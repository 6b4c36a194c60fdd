// SPDX-License-Identifier: Apache-2.0
#include "link/wire_faults.h"

#include <algorithm>
#include <cmath>

#include "link/mix.h"

namespace kvcodec {

FaultyWire::FaultyWire(const WireFaults& faults, uint64_t connection, bool downstream)
    : faults_(faults),
      stream_(mix(faults.seed, 2 * connection + (downstream ? 1 : 0))),
      next_reset_(draw(faults.bytes_per_reset, 0)),
      next_flip_(draw(faults.bytes_per_flip, 0)),
      next_stop_(draw(faults.bytes_per_stop, 0)) {}

uint64_t FaultyWire::draw(double mean, uint64_t from) {
  if (mean <= 0) return UINT64_MAX;
  const double fraction = unit_fraction(mix(stream_, draws_++));
  return from + static_cast<uint64_t>(-mean * std::log1p(-fraction));
}

FaultyWire::Verdict FaultyWire::pass(std::span<std::byte> bytes) {
  Verdict verdict;
  const uint64_t end = std::min({at_ + bytes.size(), next_reset_, next_stop_});
  verdict.pass = static_cast<size_t>(end - at_);
  for (; next_flip_ < end; next_flip_ = draw(faults_.bytes_per_flip, next_flip_ + 1)) {
    bytes[static_cast<size_t>(next_flip_ - at_)] ^= std::byte{1} << (mix(stream_, next_flip_) % 8);
    ++verdict.flips;
  }
  at_ = end;
  if (verdict.pass < bytes.size()) {
    verdict.reset = at_ == next_reset_;
    verdict.stop = !verdict.reset;
    if (verdict.stop) next_stop_ = draw(faults_.bytes_per_stop, at_ + 1);
  }
  return verdict;
}

}  // namespace kvcodec
