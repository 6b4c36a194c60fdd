// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvcodec::transform {

// The product of matrices that the calibrated tiers are made of, bit for bit (docs/format.md,
// "Basis"): out[i][j] is start[i] to which a[i][k] * b[k][j] is added by fused multiply-add in
// binary32, k ascending. One chain a number, whatever the tiles, so that every variant, number of
// threads and processor gives the same bits.
inline constexpr size_t kProductPad = 32;  // columns that a variant may work on at once

struct Product {
  size_t rows = 0, columns = 0, depth = 0;
  const float* start = nullptr;  // [rows]; nullptr: zeros
  bool resume = false;           // start with what is in out instead
  // a[i][k] is at a[i * a_row + index[k] * a_depth].
  const float* a = nullptr;
  size_t a_row = 0, a_depth = 0;
  const uint32_t* index = nullptr;  // [depth]; nullptr: k itself
  // [depth][b_row] and [rows][out_row]; columns up to the next multiple of kProductPad are read
  // and written too. The padding must hold numbers.
  const float* b = nullptr;
  size_t b_row = 0;
  float* out = nullptr;
  size_t out_row = 0;
};
// `columns` with that padding.
inline constexpr size_t padded_columns(size_t columns) {
  return (columns + kProductPad - 1) / kProductPad * kProductPad;
}

struct ProductOps {
  const char* name;
  void (*multiply)(const Product& product);
  // Leaves out what is zero in b, so start must not have a -0; requires a_row == 1.
  bool sparse = false;
};
std::span<const ProductOps> product_variants();  // [0] is the reference
const ProductOps& best_product();                // for dense b
// The best for a b of mostly zeros; requires what `sparse` does.
const ProductOps& sparse_product();

// Rows of b, in order of their depth, that are better worked off densely before the others are
// worked off sparsely: the start of the longest run that saves time. nonzero: of each row, of
// `columns`.
size_t dense_rows(std::span<const uint32_t> nonzero, size_t columns);

}  // namespace kvcodec::transform
