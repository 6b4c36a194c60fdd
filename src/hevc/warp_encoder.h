// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "hevc/cabac_tables.h"
#include "hevc/picture.h"

// The same syntax as encoder_reference.cpp, cut for one warp a picture: 32 lanes turn the 64
// sub-blocks of a coding tree unit into context bins and bypass bits, then one lane codes them.
// Lanes talk through WarpState alone. Everything is constexpr, so that nvcc takes it for the device
// as it is, and a test runs it on the host, lane after lane.
namespace kvcodec::hevc {

inline constexpr uint32_t kWarpLanes = 32;
inline constexpr int kSubBlocks = 64;
// Context of end_of_slice_segment_flag, as in fast_cabac.h: a state that never changes.
inline constexpr int kWarpTerminate = kContextCount;
inline constexpr uint32_t kSliceTooLong = UINT32_MAX;
// Bytes that a coding tree unit may take (fast_cabac.h), and what finish() writes.
inline constexpr uint32_t kWarpBlockBytes = 4096 + 64;
inline constexpr uint8_t kNoRemaining = 255;

// What lanes look up; small enough for shared memory.
struct WarpTables {
  // By state << 1 | bin: LPS ranges by qRangeIdx in the low four bytes; next state << 1; whether
  // the bin is the LPS.
  uint64_t steps[256];
  uint8_t initial[52];                            // ContextStates, shifted left by 1
  uint8_t scan8[kSubBlocks], index8[kSubBlocks];  // raster index of a sub-block, and back
  uint8_t scan4[16];
  uint8_t pattern[4][16];  // kSignificancePatterns, by scan position
  uint8_t last_prefix[32], last_base[12];
};
WarpTables make_warp_tables();

struct WarpPicture {
  const uint8_t* samples;
  uint64_t stride;
  uint32_t width, height;
  uint32_t persistent_rice;
  uint32_t words;  // of room in `out`; a slice that needs more is kSliceTooLong
  uint32_t* out;   // the slice data begin at its second word, without emulation prevention
};

struct WarpState {
  uint32_t bypass[kSubBlocks][9];    // bits of a sub-block, the first one highest
  uint8_t records[kSubBlocks][28];   // context << 1 | bin
  uint8_t residual[kSubBlocks][16];  // by raster index
  uint16_t masks[kSubBlocks];        // levels that are not zero, by scan position
  uint16_t bypass_bits[kSubBlocks];
  uint8_t record_count[kSubBlocks];
  uint8_t first_remaining[kSubBlocks], rice[kSubBlocks];
  uint8_t states[52];
  uint8_t skipped[kMaxPictureSide / kBlock + 4];  // [0]: left of the picture
};

// CABAC with a 64-bit low, as FastCabac, output in words. `Ops` has what differs between host and
// device.
template <typename Ops>
class WarpCoder {
 public:
  constexpr WarpCoder(uint32_t* out, const uint64_t* steps, uint8_t* states)
      : out_(out), at_(out), steps_(steps), states_(states) {}

  constexpr uint32_t words() const { return static_cast<uint32_t>(at_ - out_); }

  constexpr void put(uint32_t record) {
    code(step_of(record));
    flush();
  }

  // What one bin waits for is begun while those before it are coded: its record three bins ahead,
  // its state two, its step one.
  constexpr void put_records(const uint8_t* records, uint32_t count) {
    if (count == 0) return;
    const uint32_t last = count - 1;
    uint32_t now = records[0], next = records[last < 1 ? last : 1];
    uint32_t after_next = records[last < 2 ? last : 2];
    uint64_t step = steps_[states_[now >> 1] | (now & 1)];
    uint32_t known = states_[next >> 1];  // unless the bin before changes it
    for (uint32_t i = 0;; ++i) {
      const uint32_t state = static_cast<uint32_t>(step >> 32) & 0xff;
      states_[now >> 1] = static_cast<uint8_t>(state);
      const uint32_t next_state = next >> 1 == now >> 1 ? state : known;
      const uint64_t next_step = steps_[next_state | (next & 1)];
      known = states_[after_next >> 1];
      const uint32_t third = records[i + 3 < last ? i + 3 : last];
      code(step);
      if (i == last) break;
      if (i % 2 == 1) flush();
      step = next_step;
      now = next;
      next = after_next;
      after_next = third;
    }
    flush();
  }

  // The `bits` (at most 16) low bits of value, which has no others.
  constexpr void put_bypass(uint32_t value, int bits) {
    low_ = (low_ << bits) + static_cast<uint64_t>(range_ * value);
    waiting_ += bits;
    flush();
  }

  // `bits` bits of words, the first one highest.
  constexpr void put_bypass_words(const uint32_t* words, uint32_t bits) {
    for (; bits >= 32; bits -= 32, ++words) {
      put_bypass(*words >> 16, 16);
      put_bypass(*words & 0xffff, 16);
    }
    if (bits > 16) {
      put_bypass(*words >> 16, 16);
      put_bypass((*words & 0xffff) >> (32 - bits), static_cast<int>(bits) - 16);
    } else if (bits > 0) {
      put_bypass(*words >> (32 - bits), static_cast<int>(bits));
    }
  }

  // After the record of a set end_of_slice_segment_flag. Bytes of slice data.
  constexpr uint32_t finish() {
    // EncodeFlush: two bits of low after those waiting, the last one replaced by the stop bit.
    uint64_t value = low_ >> 7 | 1;
    int bits = waiting_ + 2;
    if (value >> bits != 0) carry();
    value &= (uint64_t{1} << bits) - 1;
    *at_++ = Ops::big_endian(pending_);
    const uint32_t bytes = static_cast<uint32_t>(bits + 7) / 8;
    value <<= 64 - bits;
    at_[0] = Ops::big_endian(static_cast<uint32_t>(value >> 32));
    at_[1] = Ops::big_endian(static_cast<uint32_t>(value));
    return (words() - 1) * 4 + bytes;
  }

 private:
  constexpr uint64_t step_of(uint32_t record) {
    uint8_t& state = states_[record >> 1];
    const uint64_t step = steps_[state | (record & 1)];
    state = static_cast<uint8_t>(step >> 32);
    return step;
  }

  constexpr void code(uint64_t step) {
    const uint32_t lps = static_cast<uint32_t>(step) >> (range_ >> 3 & 24) & 0xff;
    const uint32_t most = range_ - lps;
    const bool is_lps = (step >> 40 & 1) != 0;
    low_ += is_lps ? most : 0;
    range_ = is_lps ? lps : most;
    const int shift = Ops::leading_zeros(range_) - 23;
    range_ <<= shift;
    low_ <<= shift;
    waiting_ += shift;
  }

  // Keeps fewer than 32 bits waiting. The last word is held back for a carry into it.
  constexpr void flush() {
    if (waiting_ < 32) return;
    waiting_ -= 32;
    const uint64_t value = low_ >> (9 + waiting_);
    low_ &= (uint64_t{1} << (9 + waiting_)) - 1;
    if (value >> 32 != 0) carry();
    *at_++ = Ops::big_endian(pending_);
    pending_ = static_cast<uint32_t>(value);
  }

  constexpr void carry() {
    if (++pending_ != 0) return;
    for (uint32_t* word = at_;;) {
      --word;
      const uint32_t sum = Ops::big_endian(*word) + 1;
      *word = Ops::big_endian(sum);
      if (sum != 0) return;
    }
  }

  uint32_t* const out_;
  uint32_t* at_;
  const uint64_t* const steps_;
  uint8_t* const states_;
  uint64_t low_ = 0;
  uint32_t range_ = 510;
  int waiting_ = 0;
  uint32_t pending_ = 0;  // the first one is no data
};

// Row `lane` of the block at (left, top); samples outside the picture have no residual. Whether
// any is not zero.
constexpr bool load_warp_row(WarpState& state, const WarpPicture& picture, uint32_t left,
                             uint32_t top, uint32_t lane) {
  const uint32_t y = top + lane;
  uint32_t any = 0;
  for (uint32_t x = 0; x < kBlock; ++x) {
    uint32_t value = 0;
    if (y < picture.height && left + x < picture.width)
      value = picture.samples[y * picture.stride + left + x] ^ 0x80u;
    state.residual[lane / 4 * 8 + x / 4][lane % 4 * 4 + x % 4] = static_cast<uint8_t>(value);
    any |= value;
  }
  return any != 0;
}

constexpr uint32_t warp_magnitude(uint32_t residual) {
  return residual < 128 ? residual : 256 - residual;
}

// The first look at sub-block `i` (scan order): its mask and first remaining level. Whether one of
// its first eight levels is above 1.
constexpr bool scan_sub_block(WarpState& state, const WarpTables& tables, uint32_t i) {
  const uint8_t* residual = state.residual[tables.scan8[i]];
  uint32_t mask = 0, count = 0;
  bool greater1 = false;
  uint8_t first = kNoRemaining;
  for (int position = 15; position >= 0; --position) {
    const uint32_t level = warp_magnitude(residual[tables.scan4[position]]);
    if (level == 0) continue;
    mask |= 1u << position;
    uint32_t base = 1;
    if (count < 8) {
      base = level > 1 && !greater1 ? 3 : 2;
      greater1 |= level > 1;
    }
    if (first == kNoRemaining && level >= base) first = static_cast<uint8_t>(level - base);
    ++count;
  }
  state.masks[i] = static_cast<uint16_t>(mask);
  state.first_remaining[i] = first;
  return greater1;
}

// Appends bits to a sub-block's words.
class WarpBits {
 public:
  constexpr explicit WarpBits(uint32_t* words) : words_(words) {}
  constexpr void put(uint32_t value, int bits) {
    held_ = held_ << bits | value;
    bits_ += bits;
    total_ += bits;
    if (bits_ < 32) return;
    bits_ -= 32;
    *words_++ = static_cast<uint32_t>(held_ >> bits_);
  }
  constexpr uint16_t finish() {
    if (bits_ > 0) *words_ = static_cast<uint32_t>(held_ << (32 - bits_));
    return static_cast<uint16_t>(total_);
  }

 private:
  uint32_t* words_;
  uint64_t held_ = 0;
  int bits_ = 0, total_ = 0;
};

// remaining_code() without a struct of results.
constexpr void put_remaining(WarpBits& bits, uint32_t level, int rice) {
  if (const uint32_t prefix = level >> rice; prefix <= 3) {
    const uint32_t ones = (1u << prefix) - 1;
    bits.put((ones << 1) << rice | (level & ((1u << rice) - 1)),
             static_cast<int>(prefix) + 1 + rice);
    return;
  }
  uint32_t rest = level - (4u << rice);
  int length = rice + 1, ones = 4;
  while (rest >= 1u << length) {
    rest -= 1u << length;
    ++length;
    ++ones;
  }
  bits.put(((1u << ones) - 1) << 1 << length | rest, ones + 1 + length);
}

// Greater-than flags into records (returns their new end), signs and remaining levels into bits.
constexpr uint8_t* put_warp_levels(WarpState& state, const WarpTables& tables, uint32_t i,
                                   bool greater1_before, bool persistent_rice, uint8_t* record) {
  const uint8_t* residual = state.residual[tables.scan8[i]];
  const uint32_t mask = state.masks[i];
  const int set = (i > 0 ? 2 : 0) + (greater1_before ? 1 : 0);  // 9.3.4.2.6
  uint32_t signs = 0, count = 0, first_greater1 = 16, first_level = 0;
  int context = 1;
  for (int position = 15; position >= 0; --position) {
    if ((mask >> position & 1) == 0) continue;
    const uint32_t value = residual[tables.scan4[position]], level = warp_magnitude(value);
    signs = signs << 1 | value >> 7;
    if (count < 8) {
      const bool greater1 = level > 1;
      *record++ = static_cast<uint8_t>((kGreater1 + 4 * set + context) << 1 | (greater1 ? 1 : 0));
      if (greater1) {
        context = 0;
        if (first_greater1 == 16) {
          first_greater1 = count;
          first_level = level;
        }
      } else if (context > 0 && context < 3) {
        ++context;
      }
    }
    ++count;
  }
  if (first_greater1 < 16)
    *record++ = static_cast<uint8_t>((kGreater2 + set) << 1 | (first_level > 2 ? 1 : 0));

  WarpBits bits(state.bypass[i]);
  bits.put(signs, static_cast<int>(count));
  int rice = state.rice[i];
  count = 0;
  for (int position = 15; position >= 0; --position) {
    if ((mask >> position & 1) == 0) continue;
    const uint32_t level = warp_magnitude(residual[tables.scan4[position]]);
    const uint32_t base = count >= 8 ? 1 : count == first_greater1 ? 3 : 2;
    ++count;
    if (level < base) continue;
    put_remaining(bits, level - base, rice);
    if (level > 3u << rice && (persistent_rice || rice < 4)) ++rice;
  }
  state.bypass_bits[i] = bits.finish();
  return record;
}

// Records and bits of sub-block i. greater1: of all sub-blocks, by scan index, whether one of their
// first eight levels is above 1; coded: those that have levels; last: the highest of these.
constexpr void code_sub_block(WarpState& state, const WarpTables& tables, uint32_t i,
                              uint64_t coded, uint64_t greater1, uint32_t last,
                              uint32_t last_position, bool persistent_rice) {
  state.record_count[i] = 0;
  state.bypass_bits[i] = 0;
  if (i > last) return;
  const uint32_t raster = tables.scan8[i], mask = state.masks[i];
  const bool right = raster % 8 < 7 && state.masks[tables.index8[raster + 1]] != 0;
  const bool below = raster < 56 && state.masks[tables.index8[raster + 8]] != 0;
  uint8_t* record = state.records[i];
  if (i < last && i > 0)
    *record++ = static_cast<uint8_t>((kCodedSubBlock + (right || below ? 1 : 0)) << 1 |
                                     (mask != 0 ? 1 : 0));
  if (mask != 0 || i == 0) {
    const uint8_t* pattern = tables.pattern[(right ? 1 : 0) + (below ? 2 : 0)];
    const int start = i == last ? static_cast<int>(last_position) : 16;
    // The only level of a sub-block needs no flag where it comes last.
    const int end = start == 16 && i > 0 && mask == 1 ? 1 : 0;
    for (int position = start - 1; position >= end; --position) {
      const int context = i == 0 && position == 0
                              ? static_cast<int>(kSignificantDc)
                              : kSignificant + (i > 0 ? 3 : 0) + pattern[position];
      *record++ = static_cast<uint8_t>(context << 1 | static_cast<int>(mask >> position & 1));
    }
  }
  if (mask != 0) {
    // The sub-block with levels that was coded before this one.
    const uint64_t before = i == 63 ? 0 : coded >> (i + 1) << (i + 1);
    const bool greater1_before = before != 0 && (greater1 & before & (~before + 1)) != 0;
    record = put_warp_levels(state, tables, i, greater1_before, persistent_rice, record);
  }
  state.record_count[i] = static_cast<uint8_t>(record - state.records[i]);
}

// What one lane does when all have coded their sub-blocks.
template <typename Ops>
class WarpSerial {
 public:
  constexpr WarpSerial(const WarpPicture& picture, const WarpTables& tables, WarpState& state)
      : tables_(tables),
        state_(state),
        persistent_rice_(picture.persistent_rice != 0),
        words_(picture.words),
        coder_(picture.out, tables.steps, state.states) {}

  constexpr bool has_room() const { return coder_.words() + kWarpBlockBytes / 4 <= words_; }

  // StatCoeff[3] before every sub-block, as SliceEncoder::update_rice_statistic.
  constexpr void choose_rice(uint32_t last) {
    for (int i = static_cast<int>(last); i >= 0; --i) {
      const int rice = persistent_rice_ ? statistic_ / 4 : 0;
      state_.rice[i] = static_cast<uint8_t>(rice);
      const uint32_t first = state_.first_remaining[i];
      if (first == kNoRemaining) continue;
      if (first >= 3u << rice) {
        ++statistic_;
      } else if (2 * first < 1u << rice && statistic_ > 0) {
        --statistic_;
      }
    }
  }

  constexpr void put_unit(uint32_t column, bool coded, uint32_t last, uint32_t last_position,
                          bool ends) {
    put(kCuTransquantBypass, true);
    put(kCuSkip + state_.skipped[column] + state_.skipped[column + 1], !coded);
    state_.skipped[column + 1] = coded ? 0 : 1;
    if (coded) {
      put(kPredMode, false);
      put(kPartMode, true);
      put(kMerge, true);
      put(kCbfChroma, false);
      put(kCbfChroma, false);
      put_last_position(last, last_position);
      for (int i = static_cast<int>(last); i >= 0; --i) {
        coder_.put_records(state_.records[i], state_.record_count[i]);
        coder_.put_bypass_words(state_.bypass[i], state_.bypass_bits[i]);
      }
    }
    put(kWarpTerminate, ends);
  }

  constexpr uint32_t finish() { return coder_.finish(); }

 private:
  constexpr void put(int context, bool bin) {
    coder_.put(static_cast<uint32_t>(context << 1 | (bin ? 1 : 0)));
  }

  constexpr void put_last_position(uint32_t sub_block, uint32_t position) {
    const uint32_t raster = tables_.scan8[sub_block], inside = tables_.scan4[position];
    const uint32_t at[2] = {raster % 8 * 4 + inside % 4, raster / 8 * 4 + inside / 4};
    put_last_prefix(kLastX, tables_.last_prefix[at[0]]);
    put_last_prefix(kLastY, tables_.last_prefix[at[1]]);
    for (const uint32_t coordinate : at) {
      const int prefix = tables_.last_prefix[coordinate];
      if (prefix > 3) coder_.put_bypass(coordinate - tables_.last_base[prefix], prefix / 2 - 1);
    }
  }

  constexpr void put_last_prefix(int context, int prefix) {
    for (int bin = 0; bin < prefix; ++bin) put(context + bin / 2, true);
    if (prefix < 9) put(context + prefix / 2, false);
  }

  const WarpTables& tables_;
  WarpState& state_;
  const bool persistent_rice_;
  const uint32_t words_;
  int statistic_ = 0;
  WarpCoder<Ops> coder_;
};

// Codes a picture. `Warp`: each(f) calls f(lane) in every lane; ballot(f) also returns a mask of
// those where it is true; one(f) calls f() in lane 0; all wait for all and see what they wrote.
// Bytes of slice data, or kSliceTooLong.
template <typename Ops, typename Warp>
constexpr uint32_t encode_with_warp(Warp& warp, const WarpPicture& picture,
                                    const WarpTables& tables, WarpState& state) {
  warp.each([&](uint32_t lane) {
    for (uint32_t i = lane; i < sizeof state.states; i += kWarpLanes)
      state.states[i] = tables.initial[i];
    for (uint32_t i = lane; i < sizeof state.skipped; i += kWarpLanes) state.skipped[i] = 0;
  });
  WarpSerial<Ops> serial(picture, tables, state);  // of lane 0
  const uint32_t columns = blocks_of(picture.width), rows = blocks_of(picture.height);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t column = 0; column < columns; ++column) {
      if (warp.ballot([&](uint32_t lane) { return lane == 0 && !serial.has_room(); }) != 0)
        return kSliceTooLong;
      const bool any = warp.ballot([&](uint32_t lane) {
        return load_warp_row(state, picture, column * kBlock, row * kBlock, lane);
      }) != 0;
      uint32_t last = 0, last_position = 0;
      if (any) {
        uint64_t coded = 0, greater1 = 0;
        for (uint32_t half = 0; half < 2; ++half) {
          greater1 |= uint64_t{warp.ballot([&](uint32_t lane) {
                        return scan_sub_block(state, tables, lane + 32 * half);
                      })}
                      << 32 * half;
          coded |= uint64_t{warp.ballot(
                       [&](uint32_t lane) { return state.masks[lane + 32 * half] != 0; })}
                   << 32 * half;
        }
        last = static_cast<uint32_t>(63 - Ops::leading_zeros64(coded));
        last_position = static_cast<uint32_t>(31 - Ops::leading_zeros(state.masks[last]));
        warp.one([&] { serial.choose_rice(last); });
        warp.each([&](uint32_t lane) {
          for (uint32_t i = lane; i < kSubBlocks; i += kWarpLanes)
            code_sub_block(state, tables, i, coded, greater1, last, last_position,
                           picture.persistent_rice != 0);
        });
      }
      const bool ends = row == rows - 1 && column == columns - 1;
      warp.one([&] { serial.put_unit(column, any, last, last_position, ends); });
    }
  }
  uint32_t bytes = 0;
  warp.one([&] { bytes = serial.finish(); });
  return bytes;
}

}  // namespace kvcodec::hevc
