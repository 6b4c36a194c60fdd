// SPDX-License-Identifier: Apache-2.0
#include "layout/row_order.h"

#include <array>

namespace kvcodec::layout {

std::vector<uint32_t> sort_rows(std::span<const uint8_t> keys) {
  std::array<uint32_t, 257> start{};
  for (uint8_t key : keys) ++start[key + 1];
  for (size_t key = 0; key < 256; ++key) start[key + 1] += start[key];
  std::vector<uint32_t> order(keys.size());
  for (uint32_t row = 0; row < keys.size(); ++row) order[start[keys[row]]++] = row;
  return order;
}

}  // namespace kvcodec::layout
