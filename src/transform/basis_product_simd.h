// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transform/basis_product.h"

namespace kvcodec::transform {

// Whether this processor has vector fused multiply-add, which multiply_simd needs.
bool simd_is_fused();
void multiply_simd(const Product& product);

}  // namespace kvcodec::transform
