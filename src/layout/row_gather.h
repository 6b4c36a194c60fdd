// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvcodec/kv.h"

namespace kvcodec::layout {

// Copies between a KV cache, in whatever order an engine keeps it, and rows: natural row
// layer * channels + head * head_dim + dim, one column a token. `rows` is the matrix
// [layers.count * channels][tokens.count] of elements of layers [first_layer, first_layer + count)
// and may not be nullptr unless it is empty. Requires a geometry that validate()s against the
// memory, layers and tokens inside its shape. Thread-safe for disjoint destinations.
struct LayerRange {
  uint32_t first = 0, count = 0;
};
void gather_rows(const KvSource& source, KvKind kind, LayerRange layers, TokenRange tokens,
                 std::byte* rows);
void scatter_rows(const KvTarget& target, KvKind kind, LayerRange layers, TokenRange tokens,
                  const std::byte* rows);

}  // namespace kvcodec::layout
