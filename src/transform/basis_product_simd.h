// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transform/basis_product.h"

namespace kvcodec::transform {

// Whether this processor has vector fused multiply-add, which multiply_simd needs.
bool simd_is_fused();
void multiply_simd(const Product& product);
// Where most of b is zero. Requires a_row == 1, and sums that are never -0.
void multiply_sparse(const Product& product);

}  // namespace kvcodec::transform
