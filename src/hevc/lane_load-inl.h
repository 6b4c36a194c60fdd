// SPDX-License-Identifier: Apache-2.0
// Brings the residual of a lane's coding tree unit into the order it is coded in.
#if defined(KVCODEC_HEVC_LANE_LOAD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KVCODEC_HEVC_LANE_LOAD_INL_H
#undef KVCODEC_HEVC_LANE_LOAD_INL_H
#else
#define KVCODEC_HEVC_LANE_LOAD_INL_H
#endif

#include "hevc/lane_levels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcodec::hevc::HWY_NAMESPACE {

// Raster index to scan index of the 8x8 sub-blocks.
struct SubBlockScan {
  uint8_t at[64] = {};
  constexpr SubBlockScan() {
    for (uint8_t i = 0; i < 64; ++i) at[kScan8[i]] = i;
  }
};
inline constexpr SubBlockScan kSubBlockScan;

// Lane without coefficients.
HWY_INLINE void clear_block(LaneScratch& scratch, size_t lane) {
  for (size_t i = 0; i < 64; ++i) scratch.nonzero[i * kLanes + lane] = 0;
}

HWY_INLINE bool all_zero(const uint8_t* samples, size_t stride, uint32_t columns, uint32_t rows) {
  for (uint32_t y = 0; y < rows; ++y) {
    uint64_t different = 0;
    for (uint32_t x = 0; x < columns; x += 8) {  // widths are multiples of 8
      different |= load64(samples + y * stride + x) ^ 0x80 * kOnes;
    }
    if (different != 0) return false;
  }
  return true;
}

// Stores a sub-block's mask and levels; its mask.
HWY_INLINE uint32_t store_sub_block(V8x16 raster, size_t sub_block, size_t lane,
                                    LaneScratch& scratch) {
  alignas(16) static constexpr uint8_t kCodingOrder[16] = {
      kScan4[15], kScan4[14], kScan4[13], kScan4[12], kScan4[11], kScan4[10], kScan4[9], kScan4[8],
      kScan4[7],  kScan4[6],  kScan4[5],  kScan4[4],  kScan4[3],  kScan4[2],  kScan4[1], kScan4[0]};
  const V8x16 residual = hn::TableLookupBytes(raster, hn::Load(d8x16, kCodingOrder));
  uint8_t bits[8] = {};
  hn::StoreMaskBits(d8x16, hn::Ne(residual, hn::Zero(d8x16)), bits);
  uint16_t mask;
  std::memcpy(&mask, bits, sizeof mask);
  scratch.nonzero[sub_block * kLanes + lane] = mask;
  compress_bytes(residual, mask, scratch.levels + (sub_block * kLanes + level_slot(lane)) * 16);
  return mask;
}

// Loads the block at (left, top) into a lane. False where all of its residual is zero.
HWY_INLINE bool load_block(const PictureView& picture, uint32_t left, uint32_t top, size_t lane,
                           LaneScratch& scratch) {
  const uint32_t columns = std::min(kBlock, picture.width - left);
  const uint32_t rows = std::min(kBlock, picture.height - top);
  const uint8_t* samples = picture.samples + top * picture.stride + left;
  size_t stride = picture.stride;
  if (all_zero(samples, stride, columns, rows)) return false;
  alignas(16) uint8_t padded[kBlock * kBlock];
  if (columns < kBlock || rows < kBlock) {
    std::memset(padded, 128, sizeof padded);
    for (uint32_t y = 0; y < rows; ++y) {
      std::memcpy(padded + y * kBlock, samples + y * stride, columns);
    }
    samples = padded;
    stride = kBlock;
  }

  const hn::Repartition<uint32_t, D8x16> d32x4;
  const hn::Repartition<uint64_t, D8x16> d64x2;
  const V8x16 middle = hn::Set(d8x16, 128);
  uint64_t coded = 0, coded_raster = 0;
  for (size_t half = 0; half < 16; ++half) {  // of a row of sub-blocks: four of them
    const uint8_t* from = samples + half / 2 * 4 * stride + half % 2 * 16;
    hn::Vec<decltype(d32x4)> line[4];
    for (size_t y = 0; y < 4; ++y) {
      line[y] = hn::BitCast(d32x4, hn::Xor(hn::LoadU(d8x16, from + y * stride), middle));
    }
    const auto low01 = hn::BitCast(d64x2, hn::InterleaveLower(d32x4, line[0], line[1]));
    const auto low23 = hn::BitCast(d64x2, hn::InterleaveLower(d32x4, line[2], line[3]));
    const auto high01 = hn::BitCast(d64x2, hn::InterleaveUpper(d32x4, line[0], line[1]));
    const auto high23 = hn::BitCast(d64x2, hn::InterleaveUpper(d32x4, line[2], line[3]));
    const V8x16 blocks[4] = {hn::BitCast(d8x16, hn::InterleaveLower(d64x2, low01, low23)),
                             hn::BitCast(d8x16, hn::InterleaveUpper(d64x2, low01, low23)),
                             hn::BitCast(d8x16, hn::InterleaveLower(d64x2, high01, high23)),
                             hn::BitCast(d8x16, hn::InterleaveUpper(d64x2, high01, high23))};
    for (size_t i = 0; i < 4; ++i) {
      const size_t at = half * 4 + i, sub_block = kSubBlockScan.at[at];
      const uint64_t filled = store_sub_block(blocks[i], sub_block, lane, scratch) != 0 ? 1 : 0;
      coded |= filled << sub_block;
      coded_raster |= filled << at;
    }
  }

  const auto last = static_cast<uint32_t>(63 - std::countl_zero(coded));
  const auto last_index =
      static_cast<uint32_t>(std::countr_zero(scratch.nonzero[last * kLanes + lane]));
  const uint32_t position = 15 - last_index;
  scratch.last_sub_block[lane] = last;
  scratch.last_index[lane] = last_index;
  scratch.last_x[lane] = kScan8[last] % 8 * 4u + kScan4[position] % 4u;
  scratch.last_y[lane] = kScan8[last] / 8 * 4u + kScan4[position] / 4u;
  const uint64_t right = coded_raster >> 1 & 0x7f * kOnes, below = coded_raster >> 8;
  for (int i = 0; i < 2; ++i) {
    scratch.right[i][lane] = static_cast<uint32_t>(right >> 32 * i);
    scratch.below[i][lane] = static_cast<uint32_t>(below >> 32 * i);
  }
  return true;
}

}  // namespace kvcodec::hevc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
