// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvcodec::layout {

// order[i] is the row of a group that is row i of its pictures: rows sorted by key, rows of equal
// keys in natural order (docs/format.md, "Layout").
std::vector<uint32_t> sort_rows(std::span<const uint8_t> keys);

}  // namespace kvcodec::layout
