// SPDX-License-Identifier: Apache-2.0
#include "transform/basis_product_simd.h"

#include <algorithm>
#include <array>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/basis_product_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvcodec::transform::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A tile of `kRows` rows and two vectors of columns is kept in registers: two thirds of the 32 that
// AVX-512 and NEON have, or of the 16 of AVX2.
#if HWY_TARGET == HWY_AVX2
constexpr size_t kRows = 6;
#else
constexpr size_t kRows = 12;
#endif
// Depth that is worked off at once: its part of `b`, 64 columns wide, fits the first-level cache.
constexpr size_t kDepth = 128;

// The a of one tile as [depth][kRows], so that it is read in order.
void PackTile(const Product& p, size_t row, size_t rows, size_t first, size_t depth, float* tile) {
  for (size_t k = 0; k < depth; ++k) {
    const size_t at = p.index == nullptr ? first + k : p.index[first + k];
    const float* a = p.a + row * p.a_row + at * p.a_depth;
    for (size_t i = 0; i < rows; ++i) tile[k * kRows + i] = a[i * p.a_row];
    for (size_t i = rows; i < kRows; ++i) tile[k * kRows + i] = 0;
  }
}

template <size_t rows>
void MultiplyTile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t depth,
                  size_t b_row, const float* start, bool first, float* HWY_RESTRICT out,
                  size_t out_row) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> left[rows], right[rows];
  for (size_t i = 0; i < rows; ++i) {
    if (first) {
      left[i] = right[i] = hn::Set(d, start == nullptr ? 0.0f : start[i]);
    } else {
      left[i] = hn::LoadU(d, out + i * out_row);
      right[i] = hn::LoadU(d, out + i * out_row + lanes);
    }
  }
  for (size_t k = 0; k < depth; ++k) {
    const auto b0 = hn::LoadU(d, b + k * b_row);
    const auto b1 = hn::LoadU(d, b + k * b_row + lanes);
    for (size_t i = 0; i < rows; ++i) {
      const auto factor = hn::Set(d, a[k * kRows + i]);
      left[i] = hn::MulAdd(factor, b0, left[i]);
      right[i] = hn::MulAdd(factor, b1, right[i]);
    }
  }
  for (size_t i = 0; i < rows; ++i) {
    hn::StoreU(left[i], d, out + i * out_row);
    hn::StoreU(right[i], d, out + i * out_row + lanes);
  }
}

using TileFunction = decltype(&MultiplyTile<1>);
template <size_t... n>
constexpr std::array<TileFunction, sizeof...(n)> tile_functions(std::index_sequence<n...>) {
  return {&MultiplyTile<n + 1>...};
}

void Multiply(const Product& p) {
  static constexpr auto kTiles = tile_functions(std::make_index_sequence<kRows>());
  const hn::ScalableTag<float> d;
  const size_t width = 2 * hn::Lanes(d);
  std::array<float, kDepth * kRows> tile;
  // At least one round, so that a product without depth is `start`.
  for (size_t k = 0; k == 0 || k < p.depth; k += kDepth) {
    const size_t depth = std::min(kDepth, p.depth - k);
    for (size_t row = 0; row < p.rows; row += kRows) {
      const size_t rows = std::min(kRows, p.rows - row);
      PackTile(p, row, rows, k, depth, tile.data());
      const float* start = p.start == nullptr ? nullptr : p.start + row;
      for (size_t column = 0; column < p.columns; column += width) {
        kTiles[rows - 1](tile.data(), p.b + k * p.b_row + column, depth, p.b_row, start, k == 0,
                         p.out + row * p.out_row + column, p.out_row);
      }
    }
  }
}

}  // namespace kvcodec::transform::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcodec::transform {

HWY_EXPORT(Multiply);

bool simd_is_fused() {
  constexpr auto kFused = static_cast<int64_t>(HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL | HWY_NEON);
  return (hwy::SupportedTargets() & kFused) != 0;
}

void multiply_simd(const Product& product) { HWY_DYNAMIC_DISPATCH(Multiply)(product); }

}  // namespace kvcodec::transform
#endif
