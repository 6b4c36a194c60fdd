// SPDX-License-Identifier: Apache-2.0
#include "hevc/cabac_decoder.h"

namespace kvcodec::hevc {

CabacDecoder::CabacDecoder(SliceType type, const std::vector<uint8_t>& rbsp)
    : rbsp_(rbsp), states_(initial_contexts(type)) {
  for (int i = 0; i < 9; ++i) offset_ = offset_ << 1 | read_bit();
}

bool CabacDecoder::get(int context) {
  uint8_t& state = states_[context];
  const uint32_t lps = kRangeLps[state >> 1][range_ >> 6 & 3];
  range_ -= lps;
  bool bin = (state & 1) != 0;
  if (offset_ >= range_) {
    bin = !bin;
    offset_ -= range_;
    range_ = lps;
  }
  state = next_state(state, bin);
  renormalise();
  return bin;
}

bool CabacDecoder::get_bypass() {
  offset_ = offset_ << 1 | read_bit();
  if (offset_ < range_) return false;
  offset_ -= range_;
  return true;
}

uint32_t CabacDecoder::get_bypass_bits(int bits) {
  uint32_t value = 0;
  for (int i = 0; i < bits; ++i) value = value << 1 | (get_bypass() ? 1 : 0);
  return value;
}

bool CabacDecoder::get_terminate() {
  range_ -= 2;
  if (offset_ >= range_) return true;
  renormalise();
  return false;
}

uint32_t CabacDecoder::read_bit() {
  const size_t byte = bits_read_ / 8;
  const uint32_t bit = byte < rbsp_.size() ? rbsp_[byte] >> (7 - bits_read_ % 8) & 1 : 0;
  ++bits_read_;
  return bit;
}

void CabacDecoder::renormalise() {
  while (range_ < 256) {
    range_ <<= 1;
    offset_ = offset_ << 1 | read_bit();
  }
}

}  // namespace kvcodec::hevc
