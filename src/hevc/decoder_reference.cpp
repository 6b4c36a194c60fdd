// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <vector>

#include "hevc/cabac_decoder.h"
#include "hevc/cabac_tables.h"
#include "hevc/decoder_variants.h"
#include "hevc/remaining_code.h"

namespace kvcodec::hevc {
namespace {

// 7.3.1.1: the RBSP without its emulation_prevention_three_bytes.
std::vector<uint8_t> remove_emulation_prevention(std::span<const uint8_t> bytes) {
  std::vector<uint8_t> rbsp;
  int zeros = 0;
  for (const uint8_t byte : bytes) {
    if (zeros >= 2 && byte == 3) {
      zeros = 0;
      continue;
    }
    zeros = byte == 0 ? zeros + 1 : 0;
    rbsp.push_back(byte);
  }
  return rbsp;
}

// Decodes slice_segment_data (7.3.8.1) of the P slices that encoder_reference.cpp writes: every
// coding tree unit is one coding unit, one prediction unit and one transform unit of 32x32.
class SliceDecoder {
 public:
  explicit SliceDecoder(const SliceJob& job)
      : persistent_rice_(job.parameters.persistent_rice),
        target_(job.target),
        rbsp_(remove_emulation_prevention(job.slice_data)),
        cabac_(SliceType::p, rbsp_) {}

  SliceFault decode() {
    const uint32_t columns = blocks_of(target_.width), rows = blocks_of(target_.height);
    std::vector<bool> skipped(columns, false);  // the last row's, then this row's as it grows
    for (uint32_t block = 0; block < rows * columns; ++block) {
      const uint32_t column = block % columns, row = block / columns;
      const bool left_skipped = column > 0 && skipped[column - 1];
      const bool above_skipped = row > 0 && skipped[column];
      Levels levels = {};
      bool skip = false;
      if (!get_coding_unit(left_skipped + above_skipped, skip, levels))
        return {SliceFaultKind::general, block};
      skipped[column] = skip;
      write_block(column * kBlock, row * kBlock, levels);
      const bool ends = cabac_.get_terminate();  // end_of_slice_segment_flag
      const bool last = block == rows * columns - 1;
      if (cabac_.bits_read() > 8 * rbsp_.size()) return {SliceFaultKind::ends_early, block};
      if (ends && !last) return {SliceFaultKind::stops, block};
      if (!ends && last) return {SliceFaultKind::goes_on, block};
      if (last && !has_trailing_bits()) return {SliceFaultKind::trailing, block};
    }
    return {};
  }

 private:
  using Levels = std::array<std::array<int, kBlock>, kBlock>;  // row by row

  // coding_unit (7.3.8.5). False where it is none of ours.
  bool get_coding_unit(int skipped_neighbours, bool& skip, Levels& levels) {
    if (!cabac_.get(kCuTransquantBypass)) return false;
    skip = cabac_.get(kCuSkip + skipped_neighbours);
    if (skip) return true;                     // no merge_idx: MaxNumMergeCand is 1
    if (cabac_.get(kPredMode)) return false;   // inter
    if (!cabac_.get(kPartMode)) return false;  // 2Nx2N
    if (!cabac_.get(kMerge)) return false;     // so rqt_root_cbf is inferred to be 1
    if (cabac_.get(kCbfChroma)) return false;  // cbf_cb
    if (cabac_.get(kCbfChroma)) return false;  // cbf_cr; cbf_luma is inferred to be 1
    return get_residual(levels);
  }

  // residual_coding (7.3.8.11) of a 32x32 luma block with cu_transquant_bypass.
  bool get_residual(Levels& levels) {
    const int x_prefix = get_last_prefix(kLastX), y_prefix = get_last_prefix(kLastY);
    const int last_x = get_last_suffix(x_prefix), last_y = get_last_suffix(y_prefix);
    bool coded[9][9] = {};  // coded_sub_block_flag by row and column; a border of zeros
    bool inside = false;    // at the last significant coefficient or after it
    greater1_seen_ = false;
    for (int i = 63; i >= 0; --i) {
      const int x = kScan8[i] % 8, y = kScan8[i] / 8;
      int start = 16;
      if (!inside) {
        if (x != last_x / 4 || y != last_y / 4) continue;
        inside = true;
        start = 0;
        while (kScan4[start] != last_y % 4 * 4 + last_x % 4) ++start;
      }
      const bool right = coded[y][x + 1], below = coded[y + 1][x];
      coded[y][x] = start < 16 || i == 0 || cabac_.get(kCodedSubBlock + (right || below ? 1 : 0));
      if (coded[y][x] && !get_sub_block(i, start, kSignificancePatterns[right + 2 * below], levels))
        return false;
    }
    return true;
  }

  int get_last_prefix(int context) {
    int prefix = 0;
    while (prefix < 9 && cabac_.get(context + prefix / 2)) ++prefix;
    return prefix;
  }
  int get_last_suffix(int prefix) {  // and the coordinate of both (7.4.9.11)
    int at = kLastPrefixBase[prefix];
    if (prefix > 3) at += static_cast<int>(cabac_.get_bypass_bits(prefix / 2 - 1));
    return at;
  }

  // The part of residual_coding for one coded sub-block. The position at `start` is the last
  // coefficient of the block, unless start is 16.
  bool get_sub_block(int sub_block, int start, const std::array<uint8_t, 16>& pattern,
                     Levels& levels) {
    int positions[16], count = 0;
    if (start < 16) positions[count++] = start;
    bool infer_dc = start == 16 && sub_block > 0;
    for (int position = start - 1; position >= 0; --position) {
      const bool significant = (position == 0 && infer_dc) ||
                               cabac_.get(significance_context(sub_block, position, pattern));
      if (significant) {
        positions[count++] = position;
        infer_dc = false;
      }
    }
    return count == 0 || get_levels(sub_block, positions, count, levels);
  }

  static int significance_context(int sub_block, int position,
                                  const std::array<uint8_t, 16>& pattern) {
    if (sub_block == 0 && position == 0) return kSignificantDc;
    return kSignificant + (sub_block > 0 ? 3 : 0) + pattern[kScan4[position]];
  }

  // Greater-than flags, signs and remaining levels of a sub-block.
  bool get_levels(int sub_block, const int* positions, int count, Levels& levels) {
    const int set = (sub_block > 0 ? 2 : 0) + (greater1_seen_ ? 1 : 0);  // 9.3.4.2.6
    int base[16], first_greater1 = 16, greater1_context = 1;
    bool remains[16];
    for (int i = 0; i < count; ++i) {
      base[i] = 1;
      remains[i] = i >= 8;
      if (i >= 8) continue;
      remains[i] = cabac_.get(kGreater1 + 4 * set + greater1_context);
      if (remains[i]) {
        base[i] = 2;
        greater1_context = 0;
        if (first_greater1 == 16) first_greater1 = i;
      } else if (greater1_context > 0 && greater1_context < 3) {
        ++greater1_context;
      }
    }
    greater1_seen_ = first_greater1 < 16;
    if (first_greater1 < 16) {
      remains[first_greater1] = cabac_.get(kGreater2 + set);
      if (remains[first_greater1]) base[first_greater1] = 3;
    }
    bool negative[16];
    for (int i = 0; i < count; ++i) negative[i] = cabac_.get_bypass();  // coeff_sign_flag

    int rice = persistent_rice_ ? rice_statistic_ / 4 : 0;
    bool first_remaining = true;
    for (int i = 0; i < count; ++i) {
      int level = base[i];
      if (remains[i]) {
        int remaining;
        if (!get_remaining(rice, remaining)) return false;
        if (persistent_rice_ && first_remaining) update_rice_statistic(remaining);
        first_remaining = false;
        level += remaining;
        if (level > 3 << rice && (persistent_rice_ || rice < 4)) ++rice;
      }
      if (level > (negative[i] ? 128 : 127)) return false;
      const int x = kScan8[sub_block] % 8 * 4 + kScan4[positions[i]] % 4;
      const int y = kScan8[sub_block] / 8 * 4 + kScan4[positions[i]] / 4;
      levels[y][x] = negative[i] ? -level : level;
    }
    return true;
  }

  // coeff_abs_level_remaining (9.3.3.11). False where it is longer than any of an 8-bit sample.
  bool get_remaining(int rice, int& remaining) {
    int prefix = 0;
    while (prefix < kMaxRemainingBits && cabac_.get_bypass()) ++prefix;
    const int suffix = prefix <= 3 ? rice : prefix - 3 + rice;
    if (prefix + 1 + suffix > kMaxRemainingBits) return false;
    const int base = prefix <= 3 ? prefix : (1 << (prefix - 3)) + 2;
    remaining = (base << rice) + static_cast<int>(cabac_.get_bypass_bits(suffix));
    return true;
  }

  // StatCoeff[3], of luma blocks with cu_transquant_bypass (9.3.3.11).
  void update_rice_statistic(int remaining) {
    const int rice = rice_statistic_ / 4;
    if (remaining >= 3 << rice) {
      ++rice_statistic_;
    } else if (2 * remaining < 1 << rice && rice_statistic_ > 0) {
      --rice_statistic_;
    }
  }

  // The part inside of the picture, on the flat-128 reference picture.
  void write_block(uint32_t left, uint32_t top, const Levels& levels) {
    for (uint32_t y = 0; y < kBlock && top + y < target_.height; ++y) {
      uint8_t* row = target_.samples + (top + y) * target_.stride;
      for (uint32_t x = 0; x < kBlock && left + x < target_.width; ++x)
        row[left + x] = static_cast<uint8_t>(128 + levels[y][x]);
    }
  }

  // rbsp_slice_segment_trailing_bits (7.3.2.10): the last bit read is the stop bit (9.3.2.5), zeros
  // fill the byte, and cabac_zero_words may follow.
  bool has_trailing_bits() const {
    const size_t last = cabac_.bits_read() - 1, bytes = last / 8 + 1;
    const auto tail = static_cast<uint8_t>(rbsp_[last / 8] << last % 8);
    return tail == 0x80 && (rbsp_.size() - bytes) % 2 == 0 &&
           std::all_of(rbsp_.begin() + static_cast<ptrdiff_t>(bytes), rbsp_.end(),
                       [](uint8_t byte) { return byte == 0; });
  }

  const bool persistent_rice_;
  const PictureTarget target_;
  const std::vector<uint8_t> rbsp_;
  CabacDecoder cabac_;
  bool greater1_seen_ = false;  // in the sub-block decoded before, among its flags
  int rice_statistic_ = 0;
};

void decode(JobSource& source) {
  while (SliceJob* job = source.take()) {
    job->fault = SliceDecoder(*job).decode();
    source.finish(*job);
  }
}

}  // namespace

const DecoderOps kReferenceDecoder = {"reference", 1, decode};

}  // namespace kvcodec::hevc
