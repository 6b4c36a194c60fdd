// SPDX-License-Identifier: Apache-2.0
#include "layout/row_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace kvcodec::layout {
namespace {

TEST(SortRows, IsStableSortByKey) {
  std::mt19937 random(1);
  for (size_t n : {1u, 2u, 100u, 2000u}) {
    for (uint32_t keys : {1u, 3u, 256u}) {
      std::vector<uint8_t> row_keys(n);
      for (uint8_t& key : row_keys) key = static_cast<uint8_t>(random() % keys);
      std::vector<uint32_t> expected(n);
      std::iota(expected.begin(), expected.end(), 0u);
      std::stable_sort(expected.begin(), expected.end(),
                       [&](uint32_t a, uint32_t b) { return row_keys[a] < row_keys[b]; });
      EXPECT_EQ(sort_rows(row_keys), expected) << n << " rows, " << keys << " keys";
    }
  }
  EXPECT_TRUE(sort_rows({}).empty());
  EXPECT_EQ(sort_rows(std::vector<uint8_t>{255, 0, 255, 0}), (std::vector<uint32_t>{1, 3, 0, 2}));
}

}  // namespace
}  // namespace kvcodec::layout
