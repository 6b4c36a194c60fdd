// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "hevc/bit_writer.h"
#include "hevc/cabac_encoder.h"
#include "hevc/cabac_tables.h"
#include "hevc/encoder_variants.h"
#include "hevc/job_queue.h"
#include "hevc/remaining_code.h"

namespace kvcodec::hevc {
namespace {

// One coding tree unit's residual against the flat-128 reference picture, row by row. Samples
// outside the picture, in the part that the conformance window crops, have none.
struct Residual {
  int at[kBlock][kBlock];
  bool is_zero() const {
    for (const auto& row : at) {
      for (int value : row) {
        if (value != 0) return false;
      }
    }
    return true;
  }
};

Residual load_residual(const PictureView& picture, uint32_t left, uint32_t top) {
  Residual residual = {};
  for (uint32_t y = 0; y < kBlock && top + y < picture.height; ++y) {
    const uint8_t* row = picture.samples + (top + y) * picture.stride;
    for (uint32_t x = 0; x < kBlock && left + x < picture.width; ++x) {
      residual.at[y][x] = row[left + x] - 128;
    }
  }
  return residual;
}

// Encodes slice_segment_data (7.3.8.1) of one P slice. Every coding tree unit is one coding unit,
// one prediction unit and one transform unit of 32x32.
class SliceEncoder {
 public:
  SliceEncoder(bool persistent_rice, std::vector<uint8_t>& out)
      : persistent_rice_(persistent_rice), cabac_(SliceType::p, out) {}

  void encode(const PictureView& picture) {
    const uint32_t columns = blocks_of(picture.width), rows = blocks_of(picture.height);
    std::vector<bool> skipped(columns, false);  // the last row's, then this row's as it grows
    for (uint32_t row = 0; row < rows; ++row) {
      for (uint32_t column = 0; column < columns; ++column) {
        const Residual residual = load_residual(picture, column * kBlock, row * kBlock);
        const bool left_skipped = column > 0 && skipped[column - 1];
        const bool above_skipped = row > 0 && skipped[column];
        skipped[column] = residual.is_zero();
        put_coding_unit(residual, skipped[column], left_skipped + above_skipped);
        cabac_.put_terminate(row == rows - 1 &&
                             column == columns - 1);  // end_of_slice_segment_flag
      }
    }
    cabac_.finish();
  }

 private:
  // coding_unit (7.3.8.5). split_cu_flag is not sent: the unit has the smallest size allowed.
  void put_coding_unit(const Residual& residual, bool skip, int skipped_neighbours) {
    cabac_.put(kCuTransquantBypass, true);
    cabac_.put(kCuSkip + skipped_neighbours, skip);
    if (skip) return;               // no merge_idx: MaxNumMergeCand is 1
    cabac_.put(kPredMode, false);   // inter
    cabac_.put(kPartMode, true);    // 2Nx2N
    cabac_.put(kMerge, true);       // so rqt_root_cbf is inferred to be 1
    cabac_.put(kCbfChroma, false);  // cbf_cb
    cabac_.put(kCbfChroma, false);  // cbf_cr; cbf_luma is inferred to be 1
    put_residual(residual);
  }

  // residual_coding (7.3.8.11) of a 32x32 luma block with cu_transquant_bypass.
  void put_residual(const Residual& residual) {
    int last_sub_block = 63, last_position = 15;
    while (coefficient(residual, last_sub_block, last_position) == 0) {
      if (last_position-- == 0) {
        last_position = 15;
        --last_sub_block;
      }
    }
    put_last_position(last_sub_block, last_position);

    bool coded[9][9] = {};  // coded_sub_block_flag by row and column; a border of zeros
    greater1_seen_ = false;
    for (int i = last_sub_block; i >= 0; --i) {
      const int x = kScan8[i] % 8, y = kScan8[i] / 8;
      const bool right = coded[y][x + 1], below = coded[y + 1][x];
      coded[y][x] = i == last_sub_block || i == 0 || has_coefficients(residual, i);
      if (i < last_sub_block && i > 0) {
        cabac_.put(kCodedSubBlock + (right || below ? 1 : 0), coded[y][x]);
      }
      if (coded[y][x]) {
        const int start = i == last_sub_block ? last_position : 16;
        put_sub_block(residual, i, start, kSignificancePatterns[right + 2 * below]);
      }
    }
  }

  static int coefficient(const Residual& residual, int sub_block, int position) {
    const int x = kScan8[sub_block] % 8 * 4 + kScan4[position] % 4;
    const int y = kScan8[sub_block] / 8 * 4 + kScan4[position] / 4;
    return residual.at[y][x];
  }

  static bool has_coefficients(const Residual& residual, int sub_block) {
    for (int position = 0; position < 16; ++position) {
      if (coefficient(residual, sub_block, position) != 0) return true;
    }
    return false;
  }

  // last_sig_coeff_x_prefix to last_sig_coeff_y_suffix.
  void put_last_position(int sub_block, int position) {
    const int x = kScan8[sub_block] % 8 * 4 + kScan4[position] % 4;
    const int y = kScan8[sub_block] / 8 * 4 + kScan4[position] / 4;
    put_last_prefix(kLastX, kLastPrefix[x]);
    put_last_prefix(kLastY, kLastPrefix[y]);
    for (const int at : {x, y}) {
      const int prefix = kLastPrefix[at];
      if (prefix > 3) cabac_.put_bypass_bits(at - kLastPrefixBase[prefix], prefix / 2 - 1);
    }
  }

  void put_last_prefix(int context, int prefix) {
    constexpr int kMaxPrefix = 9;  // (log2(32) << 1) - 1
    for (int bin = 0; bin < prefix; ++bin) cabac_.put(context + bin / 2, true);
    if (prefix < kMaxPrefix) cabac_.put(context + prefix / 2, false);
  }

  // The part of residual_coding for one coded sub-block. Positions from `start` on hold nothing;
  // the one at `start` is the last coefficient of the block, unless start is 16.
  void put_sub_block(const Residual& residual, int sub_block, int start,
                     const std::array<uint8_t, 16>& pattern) {
    int levels[16], count = 0;
    if (start < 16) levels[count++] = coefficient(residual, sub_block, start);
    bool infer_dc = start == 16 && sub_block > 0;
    for (int position = start - 1; position >= 0; --position) {
      const int level = coefficient(residual, sub_block, position);
      if (position > 0 || !infer_dc) {
        cabac_.put(significance_context(sub_block, position, pattern), level != 0);
      }
      if (level != 0) {
        levels[count++] = level;
        infer_dc = false;
      }
    }
    if (count > 0) put_levels(levels, count, sub_block);
  }

  static int significance_context(int sub_block, int position,
                                  const std::array<uint8_t, 16>& pattern) {
    if (sub_block == 0 && position == 0) return kSignificantDc;
    return kSignificant + (sub_block > 0 ? 3 : 0) + pattern[kScan4[position]];
  }

  // Greater-than flags, signs and remaining levels of a sub-block, in coding order.
  void put_levels(const int* levels, int count, int sub_block) {
    const int set = (sub_block > 0 ? 2 : 0) + (greater1_seen_ ? 1 : 0);  // 9.3.4.2.6
    int first_greater1 = 16, greater1_context = 1;
    for (int i = 0; i < count && i < 8; ++i) {
      const bool greater1 = std::abs(levels[i]) > 1;
      cabac_.put(kGreater1 + 4 * set + greater1_context, greater1);
      if (greater1) {
        greater1_context = 0;
        if (first_greater1 == 16) first_greater1 = i;
      } else if (greater1_context > 0 && greater1_context < 3) {
        ++greater1_context;
      }
    }
    greater1_seen_ = first_greater1 < 16;
    if (first_greater1 < 16) cabac_.put(kGreater2 + set, std::abs(levels[first_greater1]) > 2);
    for (int i = 0; i < count; ++i) cabac_.put_bypass(levels[i] < 0);  // coeff_sign_flag

    int rice = persistent_rice_ ? rice_statistic_ / 4 : 0;
    bool first_remaining = true;
    for (int i = 0; i < count; ++i) {
      // The greatest level that the flags alone tell, plus one.
      const int base = i >= 8 ? 1 : i == first_greater1 ? 3 : 2;
      const int level = std::abs(levels[i]);
      if (level < base) continue;
      const uint32_t remaining = static_cast<uint32_t>(level - base);
      const RemainingCode code = remaining_code(remaining, rice);
      cabac_.put_bypass_bits(code.value, code.bits);
      if (persistent_rice_ && first_remaining) update_rice_statistic(remaining);
      first_remaining = false;
      if (level > 3 << rice && (persistent_rice_ || rice < 4)) ++rice;
    }
  }

  // StatCoeff[3], of luma blocks with cu_transquant_bypass (9.3.3.11).
  void update_rice_statistic(uint32_t remaining) {
    const int rice = rice_statistic_ / 4;
    if (remaining >= 3u << rice) {
      ++rice_statistic_;
    } else if (2 * remaining < 1u << rice && rice_statistic_ > 0) {
      --rice_statistic_;
    }
  }

  const bool persistent_rice_;
  CabacEncoder cabac_;
  bool greater1_seen_ = false;  // in the sub-block coded before, among its flags
  int rice_statistic_ = 0;
};

void encode_jobs(JobQueue& queue, size_t, LaneScratch&) {
  while (EncodeJob* job = queue.take()) {
    job->slice_data->clear();
    SliceEncoder(job->persistent_rice, *job->slice_data).encode(job->picture);
    insert_emulation_prevention(*job->slice_data, 0);
  }
}

}  // namespace

const EncoderOps kReferenceEncoder = {"reference", 1, 1, encode_jobs};

}  // namespace kvcodec::hevc
