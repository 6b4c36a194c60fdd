// SPDX-License-Identifier: Apache-2.0
#include "transform/basis_product_simd.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#undef HWY_TARGET_INCLUDE
// NOLINTNEXTLINE(readability-identifier-naming)
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
void pack_tile(const Product& p, size_t row, size_t rows, size_t first, size_t depth, float* tile) {
  for (size_t k = 0; k < depth; ++k) {
    const size_t at = p.index == nullptr ? first + k : p.index[first + k];
    const float* a = p.a + row * p.a_row + at * p.a_depth;
    for (size_t i = 0; i < rows; ++i) tile[k * kRows + i] = a[i * p.a_row];
    for (size_t i = rows; i < kRows; ++i) tile[k * kRows + i] = 0;
  }
}

template <size_t rows>
void multiply_tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t depth,
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

using TileFunction = decltype(&multiply_tile<1>);
template <size_t... n>
constexpr std::array<TileFunction, sizeof...(n)> tile_functions(std::index_sequence<n...>) {
  return {&multiply_tile<n + 1>...};
}

void multiply_dense(const Product& p) {
  static constexpr auto kTiles = tile_functions(std::make_index_sequence<kRows>());
  const hn::ScalableTag<float> d;
  const size_t width = 2 * hn::Lanes(d);
  std::array<float, kDepth * kRows> tile;
  // At least one round, so that a product without depth is `start`.
  for (size_t k = 0; k == 0 || k < p.depth; k += kDepth) {
    const size_t depth = std::min(kDepth, p.depth - k);
    for (size_t row = 0; row < p.rows; row += kRows) {
      const size_t rows = std::min(kRows, p.rows - row);
      pack_tile(p, row, rows, k, depth, tile.data());
      const float* start = p.start == nullptr ? nullptr : p.start + row;
      for (size_t column = 0; column < p.columns; column += width) {
        kTiles[rows - 1](tile.data(), p.b + k * p.b_row + column, depth, p.b_row, start,
                         k == 0 && !p.resume, p.out + row * p.out_row + column, p.out_row);
      }
    }
  }
}

// One number of b other than zero: it multiplies the a from `at` on.
struct Entry {
  size_t at;
  float value;
};

// Adds `count` entries to `vectors` vectors of sums, which stay in registers meanwhile.
template <size_t vectors, class D>
void add_entries(D d, const Entry* entries, size_t count, const float* HWY_RESTRICT a,
                 float* HWY_RESTRICT sums) {
  const size_t lanes = hn::Lanes(d);
  hn::Vec<D> sum[vectors];
  for (size_t v = 0; v < vectors; ++v) sum[v] = hn::LoadU(d, sums + v * lanes);
  for (size_t e = 0; e < count; ++e) {
    const auto factor = hn::Set(d, entries[e].value);
    const float* row = a + entries[e].at;
    for (size_t v = 0; v < vectors; ++v)
      sum[v] = hn::MulAdd(factor, hn::LoadU(d, row + v * lanes), sum[v]);
  }
  for (size_t v = 0; v < vectors; ++v) hn::StoreU(sum[v], d, sums + v * lanes);
}

#if HWY_TARGET == HWY_AVX2
constexpr size_t kVectors = 8;
#else
constexpr size_t kVectors = 16;
#endif

// Rows [row, end) of all columns.
template <size_t vectors, class D>
size_t add_rows(D d, const Product& p, size_t row, const std::vector<Entry>& entries,
                const std::vector<size_t>& counts, std::vector<float>& sums) {
  const size_t width = vectors * hn::Lanes(d);
  for (; row + width <= p.rows; row += width) {
    for (size_t j = 0; j < p.columns; ++j) {
      add_entries<vectors>(d, &entries[j * kDepth], counts[j], p.a + row, &sums[j * p.rows + row]);
    }
  }
  return row;
}

// Calls move(out[i][j], sum of it) for all, sums being [columns][rows].
template <typename Move>
void transpose_sums(const Product& p, const Move& move, std::vector<float>& sums) {
  constexpr size_t kTile = 16;
  for (size_t j = 0; j < p.columns; j += kTile) {
    for (size_t i = 0; i < p.rows; ++i) {
      for (size_t c = j; c < std::min(j + kTile, p.columns); ++c)
        move(p.out[i * p.out_row + c], sums[c * p.rows + i]);
    }
  }
}

// The same chains, zeros left out: out is made column by column, each from its own entries.
void multiply_sparse_rows(const Product& p) {
  std::vector<float> sums(p.columns * p.rows);
  if (p.resume) {
    transpose_sums(
        p, [&](float& out, float& sum) { sum = out; }, sums);
  } else if (p.start != nullptr) {
    for (size_t j = 0; j < p.columns; ++j) std::copy_n(p.start, p.rows, &sums[j * p.rows]);
  }
  std::vector<Entry> entries(p.columns * kDepth);
  std::vector<size_t> counts(p.columns);
  for (size_t first = 0; first < p.depth; first += kDepth) {
    std::fill(counts.begin(), counts.end(), 0);
    for (size_t k = first; k < std::min(first + kDepth, p.depth); ++k) {
      const size_t at = (p.index == nullptr ? k : p.index[k]) * p.a_depth;
      const float* b = p.b + k * p.b_row;
      for (size_t j = 0; j < p.columns; ++j) {
        entries[j * kDepth + counts[j]] = {at, b[j]};
        counts[j] += b[j] != 0;
      }
    }
    const hn::ScalableTag<float> d;
    size_t row = add_rows<kVectors>(d, p, 0, entries, counts, sums);
    row = add_rows<1>(d, p, row, entries, counts, sums);
    add_rows<1>(hn::CappedTag<float, 1>(), p, row, entries, counts, sums);
  }
  transpose_sums(
      p, [](float& out, float& sum) { out = sum; }, sums);
}

}  // namespace kvcodec::transform::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcodec::transform {

HWY_EXPORT(multiply_dense);
HWY_EXPORT(multiply_sparse_rows);

bool simd_is_fused() {
  constexpr auto kFused = static_cast<int64_t>(HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL | HWY_NEON);
  return (hwy::SupportedTargets() & kFused) != 0;
}

void multiply_simd(const Product& product) { HWY_DYNAMIC_DISPATCH(multiply_dense)(product); }

void multiply_sparse(const Product& product) {
  HWY_DYNAMIC_DISPATCH(multiply_sparse_rows)(product);
}

}  // namespace kvcodec::transform
#endif
