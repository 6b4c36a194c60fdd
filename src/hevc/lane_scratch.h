// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "hevc/block_tables.h"
#include "hevc/cabac_tables.h"
#include "hevc/encoder.h"
#include "hevc/job_queue.h"

// What the lane encoders of all targets share: one picture in each 32-bit lane of a vector.
namespace kvcodec::hevc {

inline constexpr size_t kMaxLanes = 16;
inline constexpr uint32_t kMaxBlockColumns = kMaxPictureSide / kBlock;

// One lane's picture and where its bytes go.
struct LaneState {
  EncodeJob* job = nullptr;  // null: the lane is idle
  uint32_t columns = 0, rows = 0, column = 0, row = 0;
  bool zero = false;  // the coding tree unit at (column, row) has no residual
  std::unique_ptr<uint8_t[]> bytes;
  uint8_t* end = nullptr;
  uint8_t skipped[kMaxBlockColumns + 1] = {};  // [0]: left of the picture; as in BlockEncoder

  bool at_last_block() const { return column == columns - 1 && row == rows - 1; }
};

// All the memory a lane encoder needs beside the results, about 40 kB and the bytes of the lanes'
// pictures. Used by one call at a time and kept between calls. Arrays are [..][lane].
struct LaneScratch {
  alignas(64) uint32_t states[(kContextCount + 1) * kMaxLanes];  // ContextStates
  alignas(64) uint16_t nonzero[64 * kMaxLanes];                  // masks in coding order
  alignas(64) uint8_t levels[64 * kMaxLanes * 16];  // not zero, in coding order, then zeros
  // Sub-blocks right of and below which one is coded, by raster index; low and high 32 bits.
  alignas(64) uint32_t right[2][kMaxLanes], below[2][kMaxLanes];
  alignas(64) uint32_t last_sub_block[kMaxLanes], last_index[kMaxLanes];  // index: coding order
  alignas(64) uint32_t last_x[kMaxLanes], last_y[kMaxLanes];
  alignas(64) uint32_t rice_statistic[kMaxLanes], rice_enabled[kMaxLanes];  // enabled: 0 or ~0
  alignas(64) uint32_t flags[kMaxLanes];                                    // for one call
  alignas(64) uint64_t low[2][kMaxLanes / 2];  // of even lanes, of odd lanes
  alignas(64) uint32_t range[kMaxLanes], waiting[kMaxLanes];
  uint8_t* at[kMaxLanes];
  LaneState lanes[kMaxLanes];
};

// A scratch of the process's pool, for one call.
class ScratchLease {
 public:
  ScratchLease();
  ~ScratchLease();
  ScratchLease(const ScratchLease&) = delete;
  ScratchLease& operator=(const ScratchLease&) = delete;
  LaneScratch& operator*() const { return *scratch_; }

 private:
  std::unique_ptr<LaneScratch> scratch_;
};

// Makes room for a coding tree unit at `at`, keeping the bytes before it.
void reserve_block(LaneState& lane, uint8_t*& at);
// Adds one to the number that ends before `at`.
inline void carry_before(uint8_t* at) {
  while (++*--at == 0) {
  }
}
// Writes the last bits of a slice, and the slice to its job.
void finish_slice(LaneState& lane, uint8_t* at, uint64_t low, uint32_t waiting);

// Positions of a mask's set bits, lowest first, then 0x80.
struct CompressTable {
  uint64_t at[256] = {};
  constexpr CompressTable() {
    for (int mask = 0; mask < 256; ++mask) {
      at[mask] = 0x80 * kOnes;
      int count = 0;
      for (uint64_t i = 0; i < 8; ++i) {
        if (mask >> i & 1) {
          at[mask] ^= (0x80 ^ i) << 8 * count;
          ++count;
        }
      }
    }
  }
};
inline constexpr CompressTable kCompress;

// By pStateIdx: rangeTabLps of qRangeIdx 0..3, lowest byte first; and after an LPS, the state
// (pStateIdx << 1) with the lowest bit set where valMps flips.
struct LaneStateTables {
  alignas(64) uint32_t lps_row[64] = {};
  alignas(64) uint32_t after_lps[64] = {};
  alignas(64) uint8_t after_lps_bytes[64] = {};
  constexpr LaneStateTables() {
    for (int state = 0; state < 64; ++state) {
      for (int q = 0; q < 4; ++q) lps_row[state] |= uint32_t{kRangeLps[state][q]} << 8 * q;
      after_lps[state] = kTransitionLps[state] * 2u + (state == 0 ? 1 : 0);
      after_lps_bytes[state] = static_cast<uint8_t>(after_lps[state]);
    }
  }
};
inline constexpr LaneStateTables kLaneStates;

}  // namespace kvcodec::hevc
