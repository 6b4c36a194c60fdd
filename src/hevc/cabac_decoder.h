// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hevc/cabac_tables.h"

namespace kvcodec::hevc {

// The arithmetic decoder as H.265 9.3.4.3 draws it, bit by bit. Slow and clear; the reference for
// the fast ones. After the data it reads zeros.
class CabacDecoder {
 public:
  // `rbsp` has no emulation prevention and must outlive this.
  CabacDecoder(SliceType type, const std::vector<uint8_t>& rbsp);
  bool get(int context);
  bool get_bypass();
  uint32_t get_bypass_bits(int bits);  // most significant first
  bool get_terminate();
  size_t bits_read() const { return bits_read_; }

 private:
  uint32_t read_bit();
  void renormalise();

  const std::vector<uint8_t>& rbsp_;
  ContextStates states_;
  size_t bits_read_ = 0;
  uint32_t range_ = 510, offset_ = 0;  // ivlCurrRange, ivlOffset
};

}  // namespace kvcodec::hevc
