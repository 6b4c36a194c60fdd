// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "kvcodec/kv.h"

namespace kvcodec::transform {

// Elements of a cache as binary32 and back. `elements` needs no alignment. Thread-safe.
// To float is exact. From float rounds to nearest even with gradual underflow; a magnitude that
// would become infinite gives the largest finite number of its sign, NaN gives +0 (docs/format.md,
// "Tier int8").
void to_floats(DType dtype, const std::byte* elements, size_t n, float* out);
void from_floats(DType dtype, const float* in, size_t n, std::byte* elements);

}  // namespace kvcodec::transform
