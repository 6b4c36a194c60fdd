// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hevc/cabac_reader.h"
#include "hevc/slice_fault.h"
#include "hevc/slice_window.h"

namespace kvcodec::hevc {

// Scan position of a raster index: the inverse of a scan.
template <size_t n>
constexpr std::array<uint8_t, n> scan_order(const std::array<uint8_t, n>& scan) {
  std::array<uint8_t, n> order{};
  for (size_t i = 0; i < n; ++i) order[scan[i]] = static_cast<uint8_t>(i);
  return order;
}
inline constexpr auto kScanOrder4 = scan_order(kScan4);
inline constexpr auto kScanOrder8 = scan_order(kScan8);

// One picture on its way through the syntax outside of sub-blocks, for the fast decoders. Finds the
// next sub-block that is coded and knows where in the picture it is.
class SliceWalk {
 public:
  // Of the sub-block that next() found.
  int sub_block() const { return sub_block_; }  // in scan order
  int start() const { return start_; }          // position of the block's last level, else 16
  uint32_t neighbours() const { return neighbours_; }  // 1: right is coded, 2: below
  bool begins_block() const { return start_ < 16; }

  // Begins with a picture, whose target becomes flat block by block.
  void begin(SliceJob& job) {
    job_ = &job;
    columns_ = blocks_of(job.parameters.width);
    blocks_ = columns_ * blocks_of(job.parameters.height);
    block_ = column_ = row_ = 0;
    std::memset(skipped_, 0, columns_ + 1);
    window_.begin(job.slice_data);
  }
  SliceJob& job() { return *job_; }
  const SliceWindow& window() const { return window_; }

  // ivlOffset as 9.3.2.5 reads it.
  uint32_t first_offset() const {
    return static_cast<uint32_t>(window_.bytes()[0]) << 1 | window_.bytes()[1] >> 7;
  }

  void fail(SliceFaultKind kind) { job_->fault = {kind, block_}; }

  // Where the samples of the sub-block go, and how far apart its rows are; blocks outside of the
  // picture go nowhere.
  uint8_t* target(int sub_block, size_t& stride) {
    const uint32_t x = column_ * kBlock + kScan8[sub_block] % 8 * kSubBlock;
    const uint32_t y = row_ * kBlock + kScan8[sub_block] / 8 * kSubBlock;
    if (x >= job_->target.width || y >= job_->target.height) {
      stride = kSubBlock;
      return nowhere_;
    }
    stride = job_->target.stride;
    return job_->target.samples + y * stride + x;
  }

  // To the next sub-block in scan order, whose coded_sub_block_flag is not read yet; false after
  // the block's first one.
  [[gnu::always_inline]] bool step() {
    if (sub_block_ == 0) return false;
    const int at = kScan8[--sub_block_];
    start_ = 16;
    const uint64_t right = coded_ >> 1 & 0x7f * kOnes, below = coded_ >> 8;
    neighbours_ = static_cast<uint32_t>((right >> at & 1) | (below >> at & 1) << 1);
    return true;
  }
  // Context of coded_sub_block_flag; the first sub-block has none, and is coded.
  int coded_context() const { return kCodedSubBlock + (neighbours_ != 0 ? 1 : 0); }
  [[gnu::always_inline]] void set_coded() { coded_ |= uint64_t{1} << kScan8[sub_block_]; }

  // From the end of a block to the first coded sub-block of the next that has any.
  template <typename Cabac>
  bool next_block(Cabac& cabac) {
    return end_block(cabac) && begin_block(cabac);
  }
  // From a sub-block that was decoded to the next coded one. False at the end of the picture and at
  // faults.
  template <typename Cabac>
  [[gnu::always_inline]] bool next(Cabac& cabac) {
    while (step()) {
      if (sub_block_ == 0 || cabac.get(coded_context())) {
        set_coded();
        return true;
      }
    }
    return next_block(cabac);
  }

  // coding_quadtree up to the block's first coded sub-block, over blocks that have none.
  template <typename Cabac>
  bool begin_block(Cabac& cabac);

 private:
  template <typename Cabac>
  bool end_block(Cabac& cabac);
  template <typename Cabac>
  bool read_unit(Cabac& cabac);
  template <typename Cabac>
  static uint32_t last_prefix(Cabac& cabac, int context);
  void flatten_block();

  SliceJob* job_ = nullptr;
  uint32_t columns_ = 0, blocks_ = 0;
  uint32_t block_ = 0, column_ = 0, row_ = 0;
  int sub_block_ = 0, start_ = 16;
  uint32_t neighbours_ = 0;
  uint64_t coded_ = 0;                             // coded sub-blocks, in raster order
  uint8_t skipped_[kMaxPictureSide / kBlock + 1];  // [0]: left of the picture
  uint8_t nowhere_[16];
  SliceWindow window_;
};

inline void SliceWalk::flatten_block() {
  const PictureTarget& target = job_->target;
  const uint32_t x = column_ * kBlock, y = row_ * kBlock;
  const uint32_t width = std::min(kBlock, target.width - x);
  const uint32_t height = std::min(kBlock, target.height - y);
  uint8_t* row = target.samples + y * target.stride + x;
  if (width == kBlock) {  // of a known size, so no call
    for (uint32_t i = 0; i < height; ++i, row += target.stride) std::memset(row, 128, kBlock);
  } else {
    for (uint32_t i = 0; i < height; ++i, row += target.stride) std::memset(row, 128, width);
  }
}

template <typename Cabac>
bool SliceWalk::end_block(Cabac& cabac) {
  const bool ends = cabac.get_terminate();  // end_of_slice_segment_flag
  const bool last = block_ + 1 == blocks_;
  if (window_.is_past_end(cabac.position())) {
    fail(SliceFaultKind::ends_early);
  } else if (ends != last) {
    fail(ends ? SliceFaultKind::stops : SliceFaultKind::goes_on);
  } else if (!ends) {
    ++block_;
    ++column_;
    if (column_ == columns_) {
      column_ = 0;
      ++row_;
    }
    return true;
  } else if (!window_.ends_at(cabac.position())) {
    fail(SliceFaultKind::trailing);
  } else {
    job_->fault = {};
  }
  return false;
}

template <typename Cabac>
bool SliceWalk::begin_block(Cabac& cabac) {
  do {
    cabac.move_down(window_.top_up(cabac.position()));
    flatten_block();
    // Left and above are in the same slice wherever they are in the picture.
    const int neighbours = skipped_[column_] + skipped_[column_ + 1];
    if (!cabac.get_likely(kCuTransquantBypass)) {
      fail(SliceFaultKind::general);
      return false;
    }
    const bool skip = cabac.get(kCuSkip + neighbours);
    skipped_[column_ + 1] = skip ? 1 : 0;
    if (!skip) return read_unit(cabac);
  } while (end_block(cabac));
  return false;
}

// coding_unit after cu_skip_flag, and residual_coding up to the last position.
template <typename Cabac>
bool SliceWalk::read_unit(Cabac& cabac) {
  const bool intra = cabac.get_likely(kPredMode);
  if (intra || !cabac.get_likely(kPartMode) || !cabac.get_likely(kMerge) ||
      cabac.get_likely(kCbfChroma) || cabac.get_likely(kCbfChroma)) {
    fail(SliceFaultKind::general);
    return false;
  }
  uint32_t at[2] = {last_prefix(cabac, kLastX), last_prefix(cabac, kLastY)};
  for (uint32_t& side : at) {
    const uint32_t prefix = side;
    side = kLastPrefixBase[prefix];
    if (prefix > 3) side += cabac.get_bypass(static_cast<int>(prefix) / 2 - 1);
  }
  sub_block_ = kScanOrder8[at[1] / 4 * 8 + at[0] / 4];
  start_ = kScanOrder4[at[1] % 4 * 4 + at[0] % 4];
  neighbours_ = 0;
  coded_ = 0;
  set_coded();
  return true;
}

template <typename Cabac>
uint32_t SliceWalk::last_prefix(Cabac& cabac, int context) {
  uint32_t prefix = 0;
  while (prefix < 9 && cabac.get(context + static_cast<int>(prefix) / 2)) ++prefix;
  return prefix;
}

}  // namespace kvcodec::hevc
