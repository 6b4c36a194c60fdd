// SPDX-License-Identifier: Apache-2.0
#include "hevc/cabac_encoder.h"

namespace kvcodec::hevc {

void CabacEncoder::put(int context, bool bin) {
  uint8_t& state = states_[context];
  const uint32_t lps = kRangeLps[state >> 1][range_ >> 6 & 3];
  range_ -= lps;
  if (bin != ((state & 1) != 0)) {
    low_ += range_;
    range_ = lps;
  }
  state = next_state(state, bin);
  renormalise();
}

void CabacEncoder::put_bypass(bool bin) {
  low_ <<= 1;
  if (bin) low_ += range_;
  if (low_ >= 1024) {
    put_bit(true);
    low_ -= 1024;
  } else if (low_ < 512) {
    put_bit(false);
  } else {
    low_ -= 512;
    ++outstanding_;
  }
}

void CabacEncoder::put_bypass_bits(uint32_t value, int bits) {
  for (int i = bits - 1; i >= 0; --i) put_bypass((value >> i & 1) != 0);
}

void CabacEncoder::put_terminate(bool bin) {
  range_ -= 2;
  if (bin) {
    low_ += range_;
    range_ = 2;
  }
  renormalise();
}

void CabacEncoder::finish() {
  put_bit((low_ >> 9 & 1) != 0);
  write_bit((low_ >> 8 & 1) != 0);
  write_bit(true);
  while (partial_bits_ != 0) write_bit(false);
}

void CabacEncoder::renormalise() {
  while (range_ < 256) {
    if (low_ < 256) {
      put_bit(false);
    } else if (low_ >= 512) {
      low_ -= 512;
      put_bit(true);
    } else {
      low_ -= 256;
      ++outstanding_;
    }
    range_ <<= 1;
    low_ <<= 1;
  }
}

void CabacEncoder::put_bit(bool bit) {
  if (first_bit_) {
    first_bit_ = false;
  } else {
    write_bit(bit);
  }
  for (; outstanding_ > 0; --outstanding_) write_bit(!bit);
}

void CabacEncoder::write_bit(bool bit) {
  partial_ = static_cast<uint8_t>(partial_ << 1 | (bit ? 1 : 0));
  if (++partial_bits_ == 8) {
    out_.push_back(partial_);
    partial_ = 0;
    partial_bits_ = 0;
  }
}

}  // namespace kvcodec::hevc
