// SPDX-License-Identifier: Apache-2.0
#include "kvcodec/kv.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace kvcodec {

size_t dtype_bytes(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::f32: return "f32";
  }
  return "unknown";
}

const char* kv_kind_name(KvKind kind) { return kind == KvKind::key ? "K" : "V"; }

size_t KvShape::token_bytes() const {
  return size_t{layers} * kv_heads * (size_t{key_dim} + value_dim) * dtype_bytes(dtype);
}

Result<Rope> make_rope(Rope::Style style, std::span<const double> radians_per_token) {
  Rope rope;
  rope.style = style;
  if (style == Rope::Style::none) return rope;
  rope.rotary_dims = static_cast<uint32_t>(2 * radians_per_token.size());
  for (size_t i = 0; i < radians_per_token.size(); ++i) {
    const double turns = radians_per_token[i] / (2 * std::numbers::pi);
    if (!(std::fabs(turns) < 1)) {
      return make_error(ErrorCode::invalid_argument,
                        "rope frequency {}: expected less than 2 pi radians a token, found {}", i,
                        radians_per_token[i]);
    }
    // |turns| < 1 scaled by 2^63 fits; the last bit of the step is far below a double's precision.
    const auto half_steps = static_cast<int64_t>(std::ldexp(turns, 63));
    rope.phase_steps.push_back(static_cast<uint64_t>(half_steps) << 1);
  }
  return rope;
}

Result<Rope> make_rope(Rope::Style style, uint32_t rotary_dims, double base) {
  if (rotary_dims % 2 != 0 || !(base >= 1)) {
    return make_error(ErrorCode::invalid_argument,
                      "rope: expected even rotary_dims and base >= 1, found {} and {}", rotary_dims,
                      base);
  }
  std::vector<double> radians(rotary_dims / 2);
  for (size_t i = 0; i < radians.size(); ++i) {
    radians[i] = std::pow(base, -2.0 * static_cast<double>(i) / rotary_dims);
  }
  return make_rope(style, radians);
}

size_t KvGeometry::element_offset(KvKind kind, uint32_t layer, uint32_t token, uint32_t head,
                                  uint32_t dim) const {
  const Strides& s = strides(kind);
  size_t block = 0, in_block = token;
  if (block_tokens != 0) {
    block = token / block_tokens;
    in_block = token % block_tokens;
    if (!block_table.empty()) block = block_table[block];
  }
  return s.offset + layer * s.layer + block * block_stride + in_block * s.token + head * s.head +
         dim * s.dim;
}

namespace {

// a * b + sum, or SIZE_MAX on overflow: sums of extents must not wrap into the valid range.
size_t multiply_add(size_t a, size_t b, size_t sum) {
  size_t product = 0, result = 0;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(product, sum, &result)) {
    return SIZE_MAX;
  }
  return result;
}

}  // namespace

Status KvGeometry::validate(size_t memory_bytes) const {
  if (tokens == 0) return ok_status();
  // The last block may hold fewer tokens than the others, and lie behind them or before.
  size_t blocks = 1, full_tokens = 0, last_tokens = tokens;
  if (block_tokens != 0) {
    blocks = (size_t{tokens} - 1) / block_tokens + 1;
    full_tokens = block_tokens;
    last_tokens = tokens - (blocks - 1) * block_tokens;
  }
  if (!block_table.empty() && block_table.size() < blocks) {
    return make_error(ErrorCode::invalid_argument,
                      "geometry: block table has {} entries, {} tokens need {}", block_table.size(),
                      tokens, blocks);
  }
  const bool has_table = block_tokens != 0 && !block_table.empty();
  const size_t last_block = has_table ? block_table[blocks - 1] : blocks - 1;
  size_t furthest_full = blocks - 1 - (blocks > 1);
  if (has_table && blocks > 1) {
    furthest_full = *std::max_element(block_table.begin(), block_table.begin() + (blocks - 1));
  }
  for (KvKind kind : kKvKinds) {
    if (shape.layers == 0 || shape.kv_heads == 0 || shape.head_dim(kind) == 0) continue;
    const Strides& s = strides(kind);
    size_t last = multiply_add(last_block, block_stride, 0);
    last = multiply_add(last_tokens - 1, s.token, last);
    if (blocks > 1) {
      size_t full = multiply_add(furthest_full, block_stride, 0);
      full = multiply_add(full_tokens - 1, s.token, full);
      last = std::max(last, full);
    }
    size_t end = multiply_add(1, last, s.offset);
    end = multiply_add(shape.layers - 1, s.layer, end);
    end = multiply_add(shape.kv_heads - 1, s.head, end);
    end = multiply_add(shape.head_dim(kind) - 1, s.dim, end);
    end = multiply_add(1, dtype_bytes(shape.dtype), end);
    if (end > memory_bytes) {
      return make_error(ErrorCode::invalid_argument,
                        "geometry: {} elements reach byte {}, the memory has {}",
                        kv_kind_name(kind), end, memory_bytes);
    }
  }
  return ok_status();
}

KvGeometry KvGeometry::contiguous(const KvShape& shape, uint32_t tokens) {
  const size_t element = dtype_bytes(shape.dtype);
  const size_t key_row = shape.channels(KvKind::key) * element;
  const size_t value_row = shape.channels(KvKind::value) * element;
  const size_t layer = (key_row + value_row) * tokens;
  KvGeometry geometry;
  geometry.shape = shape;
  geometry.tokens = tokens;
  geometry.key = {0, layer, key_row, shape.key_dim * element, element};
  geometry.value = {key_row * tokens, layer, value_row, shape.value_dim * element, element};
  return geometry;
}

}  // namespace kvcodec
