// SPDX-License-Identifier: Apache-2.0
#include "layout/row_gather.h"

#include <algorithm>
#include <cstring>

namespace kvcodec::layout {
namespace {

// A matrix of elements somewhere in memory; strides in bytes, of any alignment.
template <typename Byte>
struct Matrix {
  Byte* at;
  size_t row_stride, column_stride;
};

// 32 rows of 2-byte elements and 32 columns touch 64 cache lines at most on either side, which
// stay in the first-level cache while a tile is copied.
constexpr size_t kTile = 32;

template <typename Element>
void copy_tile(const Matrix<const std::byte>& from, const Matrix<std::byte>& to, size_t rows,
               size_t columns) {
  for (size_t c = 0; c < columns; ++c) {
    const std::byte* in = from.at + c * from.column_stride;
    std::byte* out = to.at + c * to.column_stride;
    for (size_t r = 0; r < rows; ++r)
      std::memcpy(out + r * to.row_stride, in + r * from.row_stride, sizeof(Element));
  }
}

template <typename Element>
void copy_tiles(const Matrix<const std::byte>& from, const Matrix<std::byte>& to, size_t rows,
                size_t columns) {
  for (size_t c = 0; c < columns; c += kTile) {
    for (size_t r = 0; r < rows; r += kTile) {
      const Matrix<const std::byte> in{from.at + r * from.row_stride + c * from.column_stride,
                                       from.row_stride, from.column_stride};
      const Matrix<std::byte> out{to.at + r * to.row_stride + c * to.column_stride, to.row_stride,
                                  to.column_stride};
      copy_tile<Element>(in, out, std::min(kTile, rows - r), std::min(kTile, columns - c));
    }
  }
}

void copy_matrix(const Matrix<const std::byte>& from, const Matrix<std::byte>& to, size_t rows,
                 size_t columns, size_t element) {
  if (from.column_stride == element && to.column_stride == element) {
    for (size_t r = 0; r < rows; ++r)
      std::memcpy(to.at + r * to.row_stride, from.at + r * from.row_stride, columns * element);
  } else if (element == sizeof(uint16_t)) {
    copy_tiles<uint16_t>(from, to, rows, columns);
  } else {
    copy_tiles<uint32_t>(from, to, rows, columns);
  }
}

// Calls copy(offset in the memory, column, tokens) for the runs of tokens that are one stride
// apart: those of one block.
template <typename Copy>
void for_each_run(const KvGeometry& geometry, KvKind kind, uint32_t layer, uint32_t head,
                  TokenRange tokens, const Copy& copy) {
  for (uint32_t done = 0; done < tokens.count;) {
    const uint32_t token = tokens.first + done;
    uint32_t run = tokens.count - done;
    if (geometry.block_tokens != 0)
      run = std::min(run, geometry.block_tokens - token % geometry.block_tokens);
    copy(geometry.element_offset(kind, layer, token, head, 0), done, run);
    done += run;
  }
}

// Calls copy(offset, rows offset in bytes, tokens) for every piece: a head of a layer, a run.
template <typename Copy>
void for_each_piece(const KvGeometry& geometry, KvKind kind, LayerRange layers, TokenRange tokens,
                    const Copy& copy) {
  const size_t element = dtype_bytes(geometry.shape.dtype);
  const size_t row_bytes = tokens.count * element;
  size_t row = 0;
  for (uint32_t layer = layers.first; layer < layers.first + layers.count; ++layer) {
    for (uint32_t head = 0; head < geometry.shape.kv_heads; ++head) {
      for_each_run(geometry, kind, layer, head, tokens,
                   [&](size_t offset, uint32_t column, uint32_t count) {
                     copy(offset, row * row_bytes + column * element, count);
                   });
      row += geometry.shape.head_dim(kind);
    }
  }
}

}  // namespace

void gather_rows(const KvSource& source, KvKind kind, LayerRange layers, TokenRange tokens,
                 std::byte* rows) {
  const KvGeometry& geometry = *source.geometry;
  const size_t element = dtype_bytes(geometry.shape.dtype);
  const KvGeometry::Strides& strides = geometry.strides(kind);
  for_each_piece(geometry, kind, layers, tokens, [&](size_t offset, size_t at, uint32_t count) {
    copy_matrix({source.memory.data() + offset, strides.dim, strides.token},
                {rows + at, tokens.count * element, element}, geometry.shape.head_dim(kind), count,
                element);
  });
}

void scatter_rows(const KvTarget& target, KvKind kind, LayerRange layers, TokenRange tokens,
                  const std::byte* rows) {
  const KvGeometry& geometry = *target.geometry;
  const size_t element = dtype_bytes(geometry.shape.dtype);
  const KvGeometry::Strides& strides = geometry.strides(kind);
  for_each_piece(geometry, kind, layers, tokens, [&](size_t offset, size_t at, uint32_t count) {
    copy_matrix({rows + at, tokens.count * element, element},
                {target.memory.data() + offset, strides.dim, strides.token},
                geometry.shape.head_dim(kind), count, element);
  });
}

}  // namespace kvcodec::layout
