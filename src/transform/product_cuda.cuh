// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// transform::Product on the device, bit for bit: one chain of fused multiply-adds a number, depth
// ascending. Steps of depth where a tile of b is all zero are left out, which changes no bit.
namespace kvcodec::transform {

// Output tile of a block: rows, columns, and depth of a step. A thread has 8 x 8 outputs.
inline constexpr uint32_t kTileRows = 128, kTileColumns = 64, kTileDepth = 16;
inline constexpr uint32_t kTileThreads = 128;

struct DeviceProduct {
  const float* a;  // element (row, k) is at row * a_row + k * a_depth
  uint64_t a_row, a_depth;
  const float* b;      // [depth][columns]
  const float* start;  // [rows]; null: zeros
  float* out;          // [rows][columns]
  uint32_t rows, depth, columns;
};

namespace product {

struct Shared {
  float a[2][kTileDepth][kTileRows], b[2][kTileDepth][kTileColumns];
  uint32_t live[3];  // of a step: which k have a b that is not zero
};

// What a thread brings from global memory for one step.
struct Loads {
  static constexpr uint32_t kA = kTileDepth * kTileRows / kTileThreads;
  static constexpr uint32_t kB = kTileDepth * kTileColumns / kTileThreads;
  float a[kA], b[kB];
};

// Neighbouring threads load neighbouring numbers: along rows, or along the depth.
template <bool along_depth>
__device__ void place_of(uint32_t i, uint32_t& row, uint32_t& k) {
  const uint32_t at = i * kTileThreads + threadIdx.x;
  row = along_depth ? at / kTileDepth : at % kTileRows;
  k = along_depth ? at % kTileDepth : at / kTileRows;
}

template <bool along_depth, typename B>
__device__ void load(const DeviceProduct& p, const B& b, uint32_t row0, uint32_t column0,
                     uint32_t depth0, Loads& to) {
  for (uint32_t i = 0; i < Loads::kB; ++i) {
    const uint32_t at = i * kTileThreads + threadIdx.x;
    const uint32_t k = depth0 + at / kTileColumns, column = column0 + at % kTileColumns;
    to.b[i] =
        k < p.depth && column < p.columns ? b(static_cast<uint64_t>(k) * p.columns + column) : 0.0f;
  }
  for (uint32_t i = 0; i < Loads::kA; ++i) {
    uint32_t row, k;
    place_of<along_depth>(i, row, k);
    to.a[i] = depth0 + k < p.depth && row0 + row < p.rows
                  ? p.a[(row0 + row) * p.a_row + (depth0 + k) * p.a_depth]
                  : 0.0f;
  }
}

template <bool along_depth>
__device__ void store(const Loads& from, uint32_t step, Shared& shared) {
  const uint32_t half = step % 2;
  for (uint32_t i = 0; i < Loads::kB; ++i) {
    const uint32_t at = i * kTileThreads + threadIdx.x;
    shared.b[half][at / kTileColumns][at % kTileColumns] = from.b[i];
    // A warp's numbers are of one k.
    const bool any = __any_sync(0xffffffff, from.b[i] != 0.0f) != 0;
    if (any && threadIdx.x % 32 == 0) atomicOr(&shared.live[step % 3], 1u << at / kTileColumns);
  }
  for (uint32_t i = 0; i < Loads::kA; ++i) {
    uint32_t row, k;
    place_of<along_depth>(i, row, k);
    shared.a[half][k][row] = from.a[i];
  }
}

// The outputs of a thread are four columns at x and four at x + 32, of four rows at y and four at
// y + 64: so a warp reads shared memory without conflicts.
__device__ inline void multiply_step(const Shared& shared, uint32_t half, uint32_t k, uint32_t x,
                                     uint32_t y, float (&out)[8][8]) {
  float l[8], r[8];
  *reinterpret_cast<float4*>(l) = *reinterpret_cast<const float4*>(&shared.a[half][k][y]);
  *reinterpret_cast<float4*>(l + 4) = *reinterpret_cast<const float4*>(&shared.a[half][k][y + 64]);
  *reinterpret_cast<float4*>(r) = *reinterpret_cast<const float4*>(&shared.b[half][k][x]);
  *reinterpret_cast<float4*>(r + 4) = *reinterpret_cast<const float4*>(&shared.b[half][k][x + 32]);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) out[i][j] = __fmaf_rn(l[i], r[j], out[i][j]);
  }
}

}  // namespace product

// Body of a kernel of kTileThreads threads a block, block (column tile, row tile). b(i): number i
// of the product's b.
template <bool along_depth, typename B>
__device__ void multiply_tiles(const DeviceProduct& p, const B& b) {
  __shared__ __align__(16) product::Shared shared;
  const uint32_t row0 = blockIdx.y * kTileRows, column0 = blockIdx.x * kTileColumns;
  const uint32_t x = threadIdx.x % 8 * 4, y = threadIdx.x / 8 * 4;
  float out[8][8];
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t row = row0 + y + i % 4 + i / 4 * 64;
    for (uint32_t j = 0; j < 8; ++j)
      out[i][j] = p.start != nullptr && row < p.rows ? p.start[row] : 0.0f;
  }
  const uint32_t steps = (p.depth + kTileDepth - 1) / kTileDepth;
  product::Loads next;
  if (threadIdx.x < 3) shared.live[threadIdx.x] = 0;
  __syncthreads();
  if (steps > 0) {
    product::load<along_depth>(p, b, row0, column0, 0, next);
    product::store<along_depth>(next, 0, shared);
  }
  __syncthreads();
  for (uint32_t step = 0; step < steps; ++step) {
    const bool more = step + 1 < steps;
    if (more) product::load<along_depth>(p, b, row0, column0, (step + 1) * kTileDepth, next);
    uint32_t live = shared.live[step % 3];
    if (threadIdx.x == 0) shared.live[(step + 2) % 3] = 0;
    if (live == (1u << kTileDepth) - 1) {
#pragma unroll
      for (uint32_t k = 0; k < kTileDepth; ++k)
        product::multiply_step(shared, step % 2, k, x, y, out);
    } else {
      for (; live != 0; live &= live - 1)
        product::multiply_step(shared, step % 2, __ffs(static_cast<int>(live)) - 1, x, y, out);
    }
    if (more) product::store<along_depth>(next, step + 1, shared);
    __syncthreads();
  }
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t row = row0 + y + i % 4 + i / 4 * 64;
    if (row >= p.rows) continue;
    for (uint32_t j = 0; j < 8; ++j) {
      const uint32_t column = column0 + x + j % 4 + j / 4 * 32;
      if (column < p.columns) p.out[static_cast<uint64_t>(row) * p.columns + column] = out[i][j];
    }
  }
}

template <bool along_depth>
__device__ void multiply_tiles(const DeviceProduct& p) {
  multiply_tiles<along_depth>(p, [&](uint64_t i) { return p.b[i]; });
}

}  // namespace kvcodec::transform
