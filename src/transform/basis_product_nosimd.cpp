// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "transform/basis_product_simd.h"

// A build without Highway. As it says that nothing is fused, product_variants() leaves out the two.
namespace kvcodec::transform {

bool simd_is_fused() { return false; }

void multiply_simd(const Product&) { std::abort(); }

void multiply_sparse(const Product&) { std::abort(); }

}  // namespace kvcodec::transform
