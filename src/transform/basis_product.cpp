// SPDX-License-Identifier: Apache-2.0
#include "transform/basis_product.h"

#include <cmath>

#include "transform/basis_product_simd.h"

namespace kvcodec::transform {
namespace {

void multiply_reference(const Product& p) {
  for (size_t i = 0; i < p.rows; ++i) {
    for (size_t j = 0; j < p.columns; ++j) {
      float sum = p.start == nullptr ? 0.0f : p.start[i];
      for (size_t k = 0; k < p.depth; ++k) {
        const size_t at = p.index == nullptr ? k : p.index[k];
        sum = std::fma(p.a[i * p.a_row + at * p.a_depth], p.b[k * p.b_row + j], sum);
      }
      p.out[i * p.out_row + j] = sum;
    }
  }
}

constexpr ProductOps kVariants[] = {{"reference", multiply_reference}, {"simd", multiply_simd}};

}  // namespace

// A processor without fused multiply-add has it in std::fma only.
std::span<const ProductOps> product_variants() {
  return std::span(kVariants).first(simd_is_fused() ? 2 : 1);
}
const ProductOps& best_product() { return product_variants().back(); }

}  // namespace kvcodec::transform
