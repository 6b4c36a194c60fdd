// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "hevc/cabac_tables.h"

namespace kvcodec::hevc {

// The arithmetic encoder as H.265 9.3.5 (informative) draws it, bit by bit. Slow and
// clear; the reference for the fast one.
class CabacEncoder {
 public:
  // Appends to `out`, which must outlive this.
  CabacEncoder(SliceType type, std::vector<uint8_t>& out)
      : out_(out), states_(initial_contexts(type)) {}
  void put(int context, bool bin);
  void put_bypass(bool bin);
  void put_bypass_bits(uint32_t value, int bits);  // most significant first
  void put_terminate(bool bin);
  // After put_terminate(true): the rest, with the slice's trailing bits (its stop bit is the last
  // bit of the arithmetic code).
  void finish();

 private:
  void renormalise();
  void put_bit(bool bit);
  void write_bit(bool bit);

  std::vector<uint8_t>& out_;
  ContextStates states_;
  uint32_t low_ = 0, range_ = 510;
  bool first_bit_ = true;
  uint64_t outstanding_ = 0;
  uint8_t partial_ = 0;
  int partial_bits_ = 0;
};

}  // namespace kvcodec::hevc
