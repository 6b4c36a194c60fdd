// SPDX-License-Identifier: Apache-2.0
#include "hevc/fast_cabac.h"

#include <algorithm>

namespace kvcodec::hevc {

FastCabac::FastCabac(SliceType type, std::vector<uint8_t>& out) : out_(out) {
  out_.resize(std::max(out_.capacity(), 4 * kMaxBlockBytes));
  at_ = out_.data();
  end_ = at_ + out_.size();
  const ContextStates initial = initial_contexts(type);
  for (int i = 0; i < kContextCount; ++i) states_[i] = static_cast<uint8_t>(initial[i] << 1);
  states_[kTerminate] = 63 << 2;
}

void FastCabac::grow() {
  const size_t used = at_ - out_.data();
  out_.resize(out_.size() * 2);
  at_ = out_.data() + used;
  end_ = out_.data() + out_.size();
}

void FastCabac::carry() {
  for (uint8_t* byte = at_; ++*--byte == 0;) {
  }
}

void FastCabac::finish() {
  // EncodeFlush: two bits of low after those waiting, the last one replaced by the stop bit.
  uint64_t value = low_ >> 7 | 1;
  int bits = waiting_ + 2;
  if (value >> bits != 0) carry();
  const int padding = -bits & 7;
  value <<= padding;
  for (bits += padding; bits > 0; bits -= 8) *at_++ = static_cast<uint8_t>(value >> (bits - 8));
  out_.resize(at_ - out_.data());
}

}  // namespace kvcodec::hevc
