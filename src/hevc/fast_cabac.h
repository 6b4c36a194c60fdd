// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "hevc/cabac_tables.h"

namespace kvcodec::hevc {

// The context of end_of_slice_segment_flag: 9.3.4.3.5 encodes it as a context bin of the fixed
// state 63, whose LPS range is 2.
inline constexpr int kTerminate = kContextCount;

// Most bytes that one coding tree unit takes: at most 1,700 context bins of at most 7 bits and
// 1,024 levels of one sign and at most 16 remaining bits, plus what flush() writes beyond.
inline constexpr size_t kMaxBlockBytes = 4096;

// What a bin does, by state << 1 | bin. The critical path of encoding runs through range alone, so
// all that depends on the state is here and no branch depends on the bin.
struct Step {
  // By qRangeIdx, lowest in the lowest 16 bits: the LPS range, negative if the bin is the MPS.
  uint64_t change = 0;
  uint16_t keep = 0;  // all ones if the bin is the MPS
  uint16_t add = 0;   // all ones if it is not
  uint8_t next = 0;   // state << 1
};
struct StepTable {
  Step at[256];
  constexpr StepTable() {
    for (int i = 0; i < 256; ++i) {
      const int state = i >> 1, bin = i & 1;
      const bool most_probable = (state & 1) == bin;
      for (int q = 0; q < 4; ++q) {
        const int lps = kRangeLps[state >> 1][q];
        at[i].change |= uint64_t{static_cast<uint16_t>(most_probable ? -lps : lps)} << 16 * q;
      }
      at[i].keep = most_probable ? 0xffff : 0;
      at[i].add = most_probable ? 0 : 0xffff;
      at[i].next = static_cast<uint8_t>(next_state(static_cast<uint8_t>(state), bin != 0) << 1);
    }
  }
};
inline constexpr StepTable kSteps;

// CABAC with a 64-bit low: bits wait in low's upper part and leave several bytes at a time.
// Output equals CabacEncoder's.
class FastCabac {
 public:
  // Replaces out's contents, keeping its memory; `out` must outlive this.
  FastCabac(SliceType type, std::vector<uint8_t>& out);

  // Room for a coding tree unit. Call before each.
  void reserve_block() {
    if (static_cast<size_t>(end_ - at_) < kMaxBlockBytes) grow();
  }

  // Encodes the records context << 1 | bin of [begin, end).
  void put_records(const uint8_t* begin, const uint8_t* end);

  // Encodes the `bits` (at most 47) low bits of value, which has no others.
  void put_bypass(uint64_t value, int bits) {
    if (waiting_ + bits > 54) flush(low_, waiting_);
    low_ = (low_ << bits) + range_ * value;
    waiting_ += bits;
    flush(low_, waiting_);
  }

  // After the record of a set end_of_slice_segment_flag. Leaves out with its final size.
  void finish();

 private:
  // low never takes more than 64 bits: its own 10 and those waiting, at most 39 + 2 * 7 in
  // put_records or 54 in put_bypass.
  static constexpr int kFlushBits = 40;

  void grow();
  // Moves whole bytes of the waiting bits to the output.
  void flush(uint64_t& low, int& waiting) {
    const int bytes = waiting >> 3;
    waiting &= 7;
    const uint64_t value = low >> (9 + waiting);
    low &= (uint64_t{1} << (9 + waiting)) - 1;
    if (value >> 8 * bytes != 0) carry();
    const uint64_t big_endian = __builtin_bswap64(value << 8 * (7 - bytes) << 8);
    std::memcpy(at_, &big_endian, sizeof big_endian);
    at_ += bytes;
  }
  void carry();

  std::vector<uint8_t>& out_;
  uint8_t* at_;
  uint8_t* end_;
  // low: the arithmetic code's low, 9 bits and a carry bit, below `waiting` bits not yet written.
  uint64_t low_ = 0;
  uint32_t range_ = 510;
  int waiting_ = 0;
  std::array<uint8_t, kContextCount + 1> states_;  // ContextStates, shifted left by 1
};

inline void FastCabac::put_records(const uint8_t* begin, const uint8_t* end) {
  uint64_t low = low_;
  uint32_t range = range_;
  int waiting = waiting_;
  const auto put = [&](uint32_t record) {
    uint8_t& state = states_[record >> 1];
    const Step& step = kSteps.at[state | (record & 1)];
    state = step.next;
    const uint32_t change =
        static_cast<uint32_t>(static_cast<int16_t>(step.change >> (range >> 2 & 0x30)));
    low += (range - change) & step.add;
    range = (range & step.keep) + change;
    const int shift = __builtin_clz(range) - 23;  // range >= 2
    range <<= shift;
    low <<= shift;
    waiting += shift;
  };
  const uint8_t* record = begin;
  for (; end - record >= 2; record += 2) {
    put(record[0]);
    put(record[1]);
    if (waiting >= kFlushBits) flush(low, waiting);
  }
  if (record != end) {
    put(*record);
    if (waiting >= kFlushBits) flush(low, waiting);
  }
  low_ = low;
  range_ = range;
  waiting_ = waiting;
}

}  // namespace kvcodec::hevc
