// SPDX-License-Identifier: Apache-2.0
#include "hevc/lane_scratch.h"

#include <mutex>
#include <vector>

#include "hevc/bit_writer.h"
#include "hevc/fast_cabac.h"

namespace kvcodec::hevc {
namespace {

// What a lane keeps for the next call, at most.
constexpr size_t kMaxKeptBytes = 4 << 20;

struct Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<LaneScratch>> free;  // room for all that exist
  size_t existing = 0;
};
Pool& pool() {
  static Pool instance;
  return instance;
}

}  // namespace

ScratchLease::ScratchLease() {
  {
    const std::lock_guard lock(pool().mutex);
    if (!pool().free.empty()) {
      scratch_ = std::move(pool().free.back());
      pool().free.pop_back();
    } else {
      pool().free.reserve(++pool().existing);
    }
  }
  if (!scratch_) scratch_ = std::make_unique<LaneScratch>();
}

ScratchLease::~ScratchLease() {
  for (LaneState& lane : scratch_->lanes) {
    if (static_cast<size_t>(lane.end - lane.bytes.get()) > kMaxKeptBytes) {
      lane.bytes.reset();
      lane.end = nullptr;
    }
  }
  const std::lock_guard lock(pool().mutex);
  pool().free.push_back(std::move(scratch_));
}

void reserve_block(LaneState& lane, uint8_t*& at) {
  if (static_cast<size_t>(lane.end - at) >= kMaxBlockBytes) return;
  const size_t used = at - lane.bytes.get(), size = lane.end - lane.bytes.get();
  const size_t wanted = std::max(size * 2, 16 * kMaxBlockBytes);
  auto bytes = std::make_unique_for_overwrite<uint8_t[]>(wanted);
  if (used > 0) std::memcpy(bytes.get(), lane.bytes.get(), used);
  lane.bytes = std::move(bytes);
  lane.end = lane.bytes.get() + wanted;
  at = lane.bytes.get() + used;
}

void finish_slice(LaneState& lane, uint8_t* at, uint64_t low, uint32_t waiting) {
  // As FastCabac::finish().
  uint64_t value = low >> 7 | 1;
  uint32_t bits = waiting + 2;
  if (value >> bits != 0) carry_before(at);
  const uint32_t padding = -bits & 7;
  value <<= padding;
  for (bits += padding; bits > 0; bits -= 8) *at++ = static_cast<uint8_t>(value >> (bits - 8));
  std::vector<uint8_t>& out = *lane.job->slice_data;
  out.assign(lane.bytes.get(), at);
  insert_emulation_prevention(out, 0);
}

}  // namespace kvcodec::hevc
