// SPDX-License-Identifier: Apache-2.0
#include "transform/basis_product.h"

#include <cmath>

#include "transform/basis_product_simd.h"

namespace kvcodec::transform {
namespace {

void multiply_reference(const Product& p) {
  for (size_t i = 0; i < p.rows; ++i) {
    for (size_t j = 0; j < p.columns; ++j) {
      float sum = p.resume ? p.out[i * p.out_row + j] : p.start == nullptr ? 0.0f : p.start[i];
      for (size_t k = 0; k < p.depth; ++k) {
        const size_t at = p.index == nullptr ? k : p.index[k];
        sum = std::fma(p.a[i * p.a_row + at * p.a_depth], p.b[k * p.b_row + j], sum);
      }
      p.out[i * p.out_row + j] = sum;
    }
  }
}

constexpr ProductOps kVariants[] = {
    {"reference", multiply_reference}, {"simd", multiply_simd}, {"sparse", multiply_sparse, true}};

// What a row of b costs the sparse variant, in times of the dense one: measured with
// bench/calibrated_bench, "product", on AVX-512.
constexpr double kSparseRow = 0.2, kSparseNumber = 1.8;

}  // namespace

// A processor without fused multiply-add has it in std::fma only.
std::span<const ProductOps> product_variants() {
  return std::span(kVariants).first(simd_is_fused() ? std::size(kVariants) : 1);
}

const ProductOps& best_product() { return simd_is_fused() ? kVariants[1] : kVariants[0]; }

const ProductOps& sparse_product() { return simd_is_fused() ? kVariants[2] : kVariants[0]; }

size_t dense_rows(std::span<const uint32_t> nonzero, size_t columns) {
  double cost = 0, least = 0;  // of rows [0, i) done densely, against sparsely
  size_t best = 0;
  for (size_t i = 0; i < nonzero.size(); ++i) {
    cost += 1 - kSparseRow - kSparseNumber * nonzero[i] / static_cast<double>(columns);
    if (cost < least) least = cost, best = i + 1;
  }
  return best;
}

}  // namespace kvcodec::transform
