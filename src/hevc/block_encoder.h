// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "hevc/bit_writer.h"
#include "hevc/block_tables.h"
#include "hevc/encoder.h"
#include "hevc/fast_cabac.h"
#include "hevc/job_queue.h"

// The same syntax as encoder_reference.cpp, which explains it. What makes this one fast: context
// bins are first written as bytes (context << 1 | bin), most of them eight at a time from tables
// indexed by bit masks, and then encoded in one tight loop; bypass bins are encoded up to 47 at a
// time.
namespace kvcodec::hevc {

// A block's residual as bytes, sub-block after sub-block in raster order, 4x4 raster inside.
struct Block {
  uint8_t at[64][16];
};

// Reads the block at (left, top), whose samples outside the picture are 128. False where all of
// its residual is zero.
inline bool load_block(const PictureView& picture, uint32_t left, uint32_t top, Block& block) {
  const uint32_t columns = std::min(kBlock, picture.width - left);
  const uint32_t rows = std::min(kBlock, picture.height - top);
  const uint8_t* samples = picture.samples + top * picture.stride + left;
  uint64_t any = 0;
  for (uint32_t y = 0; y < kBlock; ++y) {
    uint64_t row[4] = {};
    if (y < rows) {
      // Widths are multiples of 8.
      for (uint32_t x = 0; x < columns; x += 8) {
        row[x / 8] = load64(samples + y * picture.stride + x) ^ 0x80 * kOnes;
      }
    }
    uint8_t* to = block.at[y / 4 * 8] + y % 4 * 4;
    for (const uint64_t eight : row) {
      any |= eight;
      std::memcpy(to, &eight, 4);
      const uint32_t second = static_cast<uint32_t>(eight >> 32);
      std::memcpy(to + 16, &second, 4);
      to += 32;
    }
  }
  return any != 0;
}

class BlockEncoder {
 public:
  BlockEncoder(bool persistent_rice, std::vector<uint8_t>& out)
      : persistent_rice_(persistent_rice), cabac_(SliceType::p, out) {}

  void encode(const PictureView& picture) {
    const uint32_t columns = blocks_of(picture.width), rows = blocks_of(picture.height);
    bool skipped[kMaxPictureSide / kBlock + 1] = {};  // [0]: left of the picture
    Block block;
    for (uint32_t row = 0; row < rows; ++row) {
      for (uint32_t column = 0; column < columns; ++column) {
        cabac_.reserve_block();
        const bool coded = load_block(picture, column * kBlock, row * kBlock, block);
        put(kCuTransquantBypass, true);
        put(kCuSkip + skipped[column] + skipped[column + 1], !coded);
        skipped[column + 1] = !coded;
        if (coded) put_block(block);
        put(kTerminate, row == rows - 1 && column == columns - 1);
        flush_records();
      }
    }
    cabac_.finish();
  }

 private:
  void put(int context, bool bin) {
    *record_++ = static_cast<uint8_t>(context << 1 | (bin ? 1 : 0));
  }
  void flush_records() {
    cabac_.put_records(records_, record_);
    record_ = records_;
  }

  void put_block(const Block& block) {
    put(kPredMode, false);
    put(kPartMode, true);
    put(kMerge, true);
    put(kCbfChroma, false);
    put(kCbfChroma, false);

    uint32_t masks[64];                    // coefficients that are not zero, by scan position
    uint64_t coded = 0, coded_raster = 0;  // sub-blocks with any, by scan and raster index
    for (int i = 0; i < 64; ++i) {
      const uint8_t* at = block.at[kScan8[i]];
      masks[i] = static_cast<uint32_t>(kMasks.scan_low[to_mask(nonzero_bytes(load64(at)))] |
                                       kMasks.scan_high[to_mask(nonzero_bytes(load64(at + 8)))]);
      const uint64_t any = masks[i] != 0 ? 1 : 0;
      coded |= any << i;
      coded_raster |= any << kScan8[i];
    }
    const uint64_t right = coded_raster >> 1 & 0x7f * kOnes, below = coded_raster >> 8;

    const int last = 63 - std::countl_zero(coded);
    const int last_position = 31 - std::countl_zero(masks[last]);
    put_last_position(last, last_position);
    greater1_seen_ = false;
    put_sub_block(block.at[kScan8[last]], last, last_position, masks[last], 0);
    for (int i = last - 1; i >= 0; --i) {
      const int at = kScan8[i];
      const auto neighbours = static_cast<uint32_t>((right >> at & 1) | (below >> at & 1) << 1);
      if (i > 0) put(kCodedSubBlock + (neighbours != 0 ? 1 : 0), masks[i] != 0);
      if (i == 0 || masks[i] != 0) put_sub_block(block.at[at], i, 16, masks[i], neighbours);
    }
  }

  void put_last_position(int sub_block, int position) {
    const int x = kScan8[sub_block] % 8 * 4 + kScan4[position] % 4;
    const int y = kScan8[sub_block] / 8 * 4 + kScan4[position] / 4;
    put_last_prefix(kLastX, kLastPrefix[x]);
    put_last_prefix(kLastY, kLastPrefix[y]);
    flush_records();
    for (const int at : {x, y}) {
      const int prefix = kLastPrefix[at];
      if (prefix > 3) cabac_.put_bypass(at - kLastPrefixBase[prefix], prefix / 2 - 1);
    }
  }

  void put_last_prefix(int context, int prefix) {
    for (int bin = 0; bin < prefix; ++bin) put(context + bin / 2, true);
    if (prefix < 9) put(context + prefix / 2, false);
  }

  void put_sub_block(const uint8_t* residual, int sub_block, int start, uint32_t mask,
                     uint32_t neighbours) {
    const uint8_t* records =
        kSignificanceRecords.at[sub_block > 0 ? 1 : 0][neighbours] + 16 - start;
    // The coefficient at `start` is known, as is the only one of a sub-block when it comes last.
    const uint32_t flags = mask << (16 - start);
    store64(record_, load64(records) | kMasks.bins[flags >> 8 & 255]);
    store64(record_ + 8, load64(records + 8) | kMasks.bins[flags & 255]);
    record_ += start - (start == 16 && sub_block > 0 && mask == 1 ? 1 : 0);
    if (mask != 0) put_levels(residual, sub_block, mask);
  }

  // Magnitudes of the eight coefficients order[0..7]. Returns the mask of those above 1, shifted
  // left by 8, and that of negative ones, both with the first in bit 7.
  static uint32_t gather_levels(const uint8_t* residual, const uint8_t* order, uint8_t* levels) {
    for (int i = 0; i < 8; ++i) levels[i] = residual[order[i]];
    const uint64_t values = load64(levels);
    const uint64_t negative = values >> 7 & kOnes;
    const uint64_t magnitudes = (values ^ negative * 255) + negative;
    store64(levels, magnitudes);
    return to_reversed_mask(nonzero_bytes(magnitudes & 0xfe * kOnes)) << 8 |
           to_reversed_mask(negative);
  }

  void put_levels(const uint8_t* residual, int sub_block, uint32_t mask) {
    uint8_t order[24] = {}, levels[16];
    store64(order, kMasks.order_high[mask >> 8]);
    int count = kMasks.count[mask >> 8];
    store64(order + count, kMasks.order_low[mask & 255]);
    count += kMasks.count[mask & 255];
    const int flags = std::min(count, 8);

    uint32_t greater1 = gather_levels(residual, order, levels);
    uint32_t signs = greater1 & 0xff;
    if (count > 8) signs = signs << 8 | (gather_levels(residual, order + 8, levels + 8) & 0xff);
    signs >>= (count > 8 ? 16 : 8) - count;
    greater1 = greater1 >> 8 & 0xff00u >> flags;  // the first in bit 7
    const int set = (sub_block > 0 ? 2 : 0) + (greater1_seen_ ? 1 : 0);
    greater1_seen_ = greater1 != 0;
    const uint64_t context = static_cast<uint64_t>(kGreater1 + 4 * set) << 1;
    store64(record_, kMasks.greater1[greater1] + context * kOnes);
    record_ += flags;
    bool remaining = count > 8;
    uint32_t rest = greater1;  // flags of levels that the flags do not tell
    if (greater1 != 0) {
      const int first = std::countl_zero(greater1) - 24;
      const bool greater2 = levels[first] > 2;
      put(kGreater2 + set, greater2);
      if (!greater2) rest ^= 0x80u >> first;
      remaining |= rest != 0;
    }
    flush_records();
    if (remaining) {
      put_remaining(levels, count, signs, rest, greater1);
    } else {
      cabac_.put_bypass(signs, count);
    }
  }

  // Signs and remaining levels: of the first 8 those flagged in `rest`, of the others all.
  void put_remaining(const uint8_t* levels, int count, uint64_t bits, uint32_t rest,
                     uint32_t greater1) {
    const uint8_t* limits = kRiceLimits[persistent_rice_ ? 1 : 0];
    int rice = persistent_rice_ ? rice_statistic_ >> 2 : 0;
    int length = count;  // of `bits`
    bool first = true;
    const auto put_level = [&](uint32_t level, uint32_t base) {
      const uint32_t code = kRemaining.at[rice][level - base];
      const int code_bits = static_cast<int>(code >> 16);
      if (length > 31) {
        cabac_.put_bypass(bits, length);
        bits = 0;
        length = 0;
      }
      bits = bits << code_bits | (code & 0xffff);
      length += code_bits;
      if (first && persistent_rice_) update_rice_statistic(level - base);
      first = false;
      rice += level > limits[rice] ? 1 : 0;
    };
    const int first_greater1 = std::countl_zero(greater1) - 24;
    while (rest != 0) {
      const int i = std::countl_zero(rest) - 24;
      rest ^= 0x80u >> i;
      put_level(levels[i], i == first_greater1 ? 3 : 2);
    }
    for (int i = 8; i < count; ++i) put_level(levels[i], 1);
    cabac_.put_bypass(bits, length);
  }

  void update_rice_statistic(uint32_t remaining) {
    const int rice = rice_statistic_ >> 2;
    if (remaining >= 3u << rice) {
      ++rice_statistic_;
    } else if (2 * remaining < 1u << rice && rice_statistic_ > 0) {
      --rice_statistic_;
    }
  }

  const bool persistent_rice_;
  FastCabac cabac_;
  bool greater1_seen_ = false;
  int rice_statistic_ = 0;
  // Between two flushes: a unit's head, last position, 64 empty sub-blocks and a full one.
  uint8_t records_[160];
  uint8_t* record_ = records_;
};

// Encodes jobs of a queue: the body of every variant that is built on this. In a header, so that
// each is compiled for its own processor.
inline void encode_with_blocks(JobQueue& queue) {
  while (EncodeJob* job = queue.take()) {
    BlockEncoder(job->persistent_rice, *job->slice_data).encode(job->picture);
    insert_emulation_prevention(*job->slice_data, 0);
  }
}

}  // namespace kvcodec::hevc
