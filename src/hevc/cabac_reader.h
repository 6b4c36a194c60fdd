// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "hevc/block_tables.h"
#include "hevc/cabac_tables.h"

namespace kvcodec::hevc {

// What decoding a bin takes from the state of its context (pStateIdx << 1 | valMps), in one word:
// LPS ranges, that of qRangeIdx 0 lowest; from bit 32 the state, from bit 40 and 48 the states
// after the more and the less probable bin.
struct ReadTables {
  uint64_t state[128] = {};
  uint64_t inverse[512] = {};  // by range: 2^64 / range, rounded up
  constexpr ReadTables() {
    for (uint64_t i = 0; i < 128; ++i) {
      for (int q = 0; q < 4; ++q) state[i] |= uint64_t{kRangeLps[i >> 1][q]} << 8 * q;
      const bool mps = (i & 1) != 0;
      state[i] |= i << 32 | uint64_t{next_state(static_cast<uint8_t>(i), mps)} << 40 |
                  uint64_t{next_state(static_cast<uint8_t>(i), !mps)} << 48;
    }
    for (uint64_t range = 256; range < 512; ++range) inverse[range] = ~uint64_t{0} / range + 1;
  }
};
inline constexpr ReadTables kRead;

// A context in memory: the word, which is one table less on the way from bin to bin, or the state.
inline uint64_t word_of(uint64_t context) { return context; }
inline uint64_t word_of(uint32_t context) { return kRead.state[context]; }
inline void put_word(uint64_t& context, uint64_t word) { context = word; }
inline void put_word(uint32_t& context, uint64_t word) {
  context = static_cast<uint32_t>(word >> 32) & 127;
}

// 9.3.4.3 with a 64-bit window: ivlOffset is in the upper 9 bits of value, below it bits that wait.
// Contexts are `Context`s, `stride` apart. Reads up to 8 bytes beyond the bits it needs.
template <typename Context, int stride>
class CabacReader {
 public:
  // Positions are bits of `bytes`. `offset` is ivlOffset, whose last bit is before `position`.
  CabacReader() = default;
  CabacReader(const uint8_t* bytes, uint32_t position, uint32_t range, uint32_t offset,
              Context* contexts)
      : bytes_(bytes),
        contexts_(contexts),
        range_(range),
        value_(uint64_t{offset} << 55),
        next_(position) {}

  uint32_t range() const { return range_; }
  uint32_t offset() const { return static_cast<uint32_t>(value_ >> 55); }
  uint32_t position() const { return next_ - static_cast<uint32_t>(waiting_); }
  void move_down(uint32_t bits) { next_ -= bits; }

  [[gnu::always_inline]] void refill() {
    const uint64_t more = __builtin_bswap64(load64(bytes_ + (next_ >> 3))) << (next_ & 7);
    value_ |= more >> 1 >> (8 + waiting_);
    next_ += static_cast<uint32_t>(55 - waiting_);
    waiting_ = 55;
  }

  [[gnu::always_inline]] bool get(int context) {
    if (waiting_ < 8) refill();
    return get_filled(context);
  }
  // As often as kFilled times after refill().
  static constexpr int kFilled = 8;
  [[gnu::always_inline]] bool get_filled(int context) {
    Context& place = contexts_[context * stride];
    const uint64_t word = word_of(place);
    const uint64_t more = kRead.state[word >> 40 & 127], less = kRead.state[word >> 48];
    const uint32_t lps = static_cast<uint32_t>(word) >> (range_ >> 3 & 24) & 255;
    const uint32_t mps = range_ - lps;
    const uint64_t scaled = uint64_t{mps} << 55;
    // All ones at the less probable bin: arithmetic, as a branch would be mispredicted too often.
    const uint64_t taken = value_ < scaled ? 0 : ~uint64_t{0};
    put_word(place, more ^ ((more ^ less) & taken));
    value_ -= scaled & taken;
    range_ = mps ^ ((mps ^ lps) & static_cast<uint32_t>(taken));
    const bool bin = ((word >> 32 ^ taken) & 1) != 0;
    const int shift = std::countl_zero(range_) - 23;
    range_ <<= shift;
    value_ <<= shift;
    waiting_ -= shift;
    return bin;
  }

  // The same of a bin that is nearly always what its context finds more probable: then a branch is
  // quicker.
  [[gnu::always_inline]] bool get_likely(int context) {
    Context& place = contexts_[context * stride];
    const uint64_t word = word_of(place);
    if (waiting_ < 8) refill();
    const uint32_t lps = static_cast<uint32_t>(word) >> (range_ >> 3 & 24) & 255;
    const uint32_t mps = range_ - lps;
    if (value_ >= uint64_t{mps} << 55) [[unlikely]]
      return get(context);
    put_word(place, kRead.state[word >> 40 & 127]);
    const int shift = mps < 256 ? 1 : 0;  // no more: mps is at least 128
    range_ = mps << shift;
    value_ <<= shift;
    waiting_ -= shift;
    return (word >> 32 & 1) != 0;
  }

  bool get_terminate() {
    if (waiting_ < 8) refill();
    range_ -= 2;
    const uint64_t scaled = uint64_t{range_} << 55;
    if (value_ >= scaled) return true;
    if (range_ < 256) {
      range_ <<= 1;
      value_ <<= 1;
      --waiting_;
    }
    return false;
  }

  // Fixed-length bypass bins, at most 32.
  uint32_t get_bypass(int bits) {
    const uint64_t string = peek_bypass();
    skip_bypass(string, bits);
    return static_cast<uint32_t>(string >> 1 >> (63 - bits));
  }

  // The next bypass bins, should they be such, from the highest bit down: kPeek of them. With the
  // range constant, n bins are the quotient of the offset with n bits more by the range.
  static constexpr int kPeek = 44;
  [[gnu::always_inline]] uint64_t peek_bypass() {
    if (waiting_ < kPeek) refill();
    const uint64_t offset = value_ >> (55 - kPeek);
    const auto product = static_cast<unsigned __int128>(offset) * kRead.inverse[range_];
    return static_cast<uint64_t>(product >> 64) << (64 - kPeek);
  }
  // Takes the first `bits` of the string that peek_bypass() gave.
  [[gnu::always_inline]] void skip_bypass(uint64_t string, int bits) {
    const uint64_t taken = (string >> 1 >> (63 - bits)) * range_;
    value_ = (value_ << bits) - (taken << 55);
    waiting_ -= bits;
  }

 private:
  const uint8_t* bytes_ = nullptr;
  Context* contexts_ = nullptr;
  uint32_t range_ = 0;
  uint64_t value_ = 0;
  int waiting_ = 0;    // bits below the offset
  uint32_t next_ = 0;  // position of the first bit not in value_
};

}  // namespace kvcodec::hevc
