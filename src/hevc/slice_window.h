// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

namespace kvcodec::hevc {

// The part of a slice's RBSP that is being decoded: emulation prevention removed on the way in, so
// that memory does not grow with the slice. Positions are bits from the beginning of bytes().
// After the data come zeros.
class SliceWindow {
 public:
  // Bytes that may be read from a unit's beginning on. More than any unit takes, however malformed:
  // 1,700 context bins of at most 7 bits, 1,024 levels of at most 17, one sub-block with a level
  // that is a fault, of up to 64, and what readers look ahead.
  static constexpr size_t kUnitBytes = 4096;
  static constexpr size_t kSize = 2 * kUnitBytes;
  static constexpr size_t kSlack = 64;

  void begin(std::span<const uint8_t> slice_data) {
    source_ = slice_data;
    zeros_ = 0;
    filled_ = 0;
    fill();
  }

  const uint8_t* bytes() const { return bytes_; }

  // Call before a unit, with the position of its first bit. Returns how many bits all positions
  // have moved down. What is before `position` stays for 16 bits.
  uint32_t top_up(uint32_t position) {
    if (filled_ >= (position >> 3) + kUnitBytes || source_.empty()) return 0;
    return move_down(position);
  }

  // Whether more bits were read than there are.
  bool is_past_end(uint32_t position) const { return position > 8 * filled_; }

  // Whether the slice ends as 7.3.2.10 wants, the last bit read being rbsp_slice_segment_stop_bit
  // (9.3.2.5): zeros up to the byte's end, then nothing but cabac_zero_words. Consumes the window.
  bool ends_at(uint32_t position) {
    const uint32_t last = position - 1;
    const auto tail = static_cast<uint8_t>(bytes_[last >> 3] << (last & 7));
    if (tail != 0x80) return false;
    size_t from = (last >> 3) + 1, extra = 0;
    while (true) {
      if (std::any_of(bytes_ + from, bytes_ + filled_, [](uint8_t byte) { return byte != 0; }))
        return false;
      extra += filled_ - from;
      if (source_.empty()) return extra % 2 == 0;
      from = filled_ = 0;
      fill();
    }
  }

 private:
  uint32_t move_down(uint32_t position) {
    const size_t drop = std::max<size_t>(position >> 3, 2) - 2;
    std::memmove(bytes_, bytes_ + drop, filled_ - drop);
    filled_ -= drop;
    fill();
    return static_cast<uint32_t>(8 * drop);
  }

  void fill() {
    while (filled_ < kSize && !source_.empty()) {
      const uint8_t* from = source_.data();
      if (zeros_ == 2) {
        zeros_ = 0;
        if (*from == 3) {  // emulation_prevention_three_byte
          source_ = source_.subspan(1);
          continue;
        }
      }
      const size_t room = std::min(kSize - filled_, source_.size());
      const auto* zero = static_cast<const uint8_t*>(std::memchr(from, 0, room));
      const size_t count = zero != nullptr ? static_cast<size_t>(zero - from) + 1 : room;
      std::memcpy(bytes_ + filled_, from, count);
      zeros_ = zero == nullptr ? 0 : count > 1 ? 1 : zeros_ + 1;
      filled_ += count;
      source_ = source_.subspan(count);
    }
    if (source_.empty()) std::memset(bytes_ + filled_, 0, sizeof bytes_ - filled_);
  }

  std::span<const uint8_t> source_;  // not yet taken
  size_t filled_ = 0;
  int zeros_ = 0;  // zero bytes at the end of what was taken
  uint8_t bytes_[kSize + kUnitBytes + kSlack];
};

}  // namespace kvcodec::hevc
