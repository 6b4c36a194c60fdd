// SPDX-License-Identifier: Apache-2.0
#include "layout/row_gather.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "unit/layout/kv_geometries.h"

namespace kvcodec::layout {
namespace {

using testing_kv::NamedGeometry;

std::vector<std::byte> random_memory(size_t bytes) {
  std::mt19937 random(static_cast<uint32_t>(bytes));
  std::vector<std::byte> memory(bytes);
  for (std::byte& byte : memory) byte = static_cast<std::byte>(random());
  return memory;
}

// The element of a row matrix, by the definition of natural rows.
const std::byte* row_element(const std::vector<std::byte>& rows, const KvShape& shape, KvKind kind,
                             uint32_t layer, uint32_t head, uint32_t dim, uint32_t tokens,
                             uint32_t t) {
  const size_t row = size_t{layer} * shape.channels(kind) + head * shape.head_dim(kind) + dim;
  return rows.data() + (row * tokens + t) * dtype_bytes(shape.dtype);
}

class RowGather : public testing::TestWithParam<NamedGeometry> {};

TEST_P(RowGather, PutsEveryElementInItsPlaceAndBack) {
  const KvGeometry& geometry = GetParam().geometry;
  const KvShape& shape = geometry.shape;
  const size_t element = dtype_bytes(shape.dtype);
  const std::vector<std::byte> memory = random_memory(GetParam().bytes);
  ASSERT_TRUE(geometry.validate(memory.size()).ok());
  // A range that starts and ends inside blocks, and all layers but the first.
  const TokenRange range{3, geometry.tokens - 5};
  const LayerRange layers{1, shape.layers - 1};
  std::vector<std::byte> restored(memory.size(), std::byte{0x55}), expected = restored;
  for (KvKind kind : kKvKinds) {
    if (shape.channels(kind) == 0) continue;
    std::vector<std::byte> rows(size_t{layers.count} * shape.channels(kind) * range.count *
                                element);
    gather_rows({memory, &geometry}, kind, layers, range, rows.data());
    for (uint32_t layer = 0; layer < layers.count; ++layer)
      for (uint32_t head = 0; head < shape.kv_heads; ++head)
        for (uint32_t dim = 0; dim < shape.head_dim(kind); ++dim)
          for (uint32_t t = 0; t < range.count; ++t) {
            const size_t at =
                geometry.element_offset(kind, layers.first + layer, range.first + t, head, dim);
            ASSERT_EQ(std::memcmp(memory.data() + at,
                                  row_element(rows, shape, kind, layer, head, dim, range.count, t),
                                  element),
                      0)
                << kv_kind_name(kind) << layer << " " << head << " " << dim << " " << t;
            std::memcpy(expected.data() + at, memory.data() + at, element);
          }
    scatter_rows({restored, &geometry}, kind, layers, range, rows.data());
  }
  // Exactly the elements asked for came back; every other byte is untouched.
  EXPECT_EQ(restored, expected);
}

INSTANTIATE_TEST_SUITE_P(Geometries, RowGather, testing::ValuesIn(testing_kv::many_geometries(77)),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace kvcodec::layout
