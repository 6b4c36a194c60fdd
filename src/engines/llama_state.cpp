// SPDX-License-Identifier: Apache-2.0
#include "engines/llama_state.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "engines/llama_state_layout.h"

namespace kvcodec {
namespace {

int32_t ggml_type_of(DType dtype) {
  const auto* at = std::find_if(std::begin(kGgmlTypes), std::end(kGgmlTypes),
                                [dtype](const GgmlType& type) { return type.dtype == dtype; });
  return at->id;
}

// Where the rows of one kind begin and how far apart layers are, for `cells` cells in a state.
// The caller has checked that the sizes do not overflow.
KvGeometry::Strides ordered_strides(const KvShape& shape, KvKind kind, size_t cells) {
  const size_t element = dtype_bytes(shape.dtype);
  const size_t keys_end =
      kPreambleBytes + cells * kCellBytes + kSectionBytes +
      shape.layers * (kTensorHeaderBytes + cells * llama_row_bytes(shape, KvKind::key));
  if (kind == KvKind::value && shape.value_dim == 0) return {.offset = keys_end};
  const size_t first =
      kind == KvKind::key ? kPreambleBytes + cells * kCellBytes + kSectionBytes : keys_end;
  const size_t row = llama_row_bytes(shape, kind);
  return {.offset = first + kTensorHeaderBytes,
          .layer = kTensorHeaderBytes + cells * row,
          .token = row,
          .head = shape.head_dim(kind) * element,
          .dim = element};
}

void write_tensor_header(std::byte* at, const KvShape& shape, KvKind kind) {
  const int32_t type = ggml_type_of(shape.dtype);
  const uint64_t row = llama_row_bytes(shape, kind);
  std::memcpy(at, &type, sizeof type);
  std::memcpy(at + sizeof type, &row, sizeof row);
}

}  // namespace

uint64_t llama_row_bytes(const KvShape& shape, KvKind kind) {
  return uint64_t{shape.kv_heads} * shape.head_dim(kind) * dtype_bytes(shape.dtype);
}

Result<size_t> llama_state_bytes(const KvShape& shape, uint32_t tokens) {
  if (shape.layers == 0 || shape.kv_heads == 0 || shape.key_dim == 0 || tokens == 0 ||
      tokens > static_cast<uint32_t>(std::numeric_limits<int32_t>::max()))
    return make_error(
        ErrorCode::invalid_argument,
        "llama state: {} layers, {} KV heads, {} key elements and {} tokens: expected "
        "1 or more of each, and tokens below 2^31",
        shape.layers, shape.kv_heads, shape.key_dim, tokens);
  // 2^32 heads * 2^32 elements * 4 bytes would overflow on its own; rows this large do not exist.
  constexpr uint64_t kMaxRowBytes = uint64_t{1} << 31;
  uint64_t total = kPreambleBytes + kSectionBytes + uint64_t{tokens} * kCellBytes;
  for (KvKind kind : kKvKinds) {
    if (shape.head_dim(kind) == 0) continue;
    const uint64_t channels = uint64_t{shape.kv_heads} * shape.head_dim(kind);
    uint64_t plane = 0, planes = 0;
    if (channels > kMaxRowBytes ||
        __builtin_mul_overflow(channels * dtype_bytes(shape.dtype), uint64_t{tokens}, &plane) ||
        __builtin_add_overflow(plane, kTensorHeaderBytes, &plane) ||
        __builtin_mul_overflow(plane, uint64_t{shape.layers}, &planes) ||
        __builtin_add_overflow(total, planes, &total) ||
        total > static_cast<uint64_t>(std::numeric_limits<ptrdiff_t>::max()))
      return make_error(ErrorCode::invalid_argument,
                        "llama state: {} tokens of {} layers and {} {} channels overflow a size",
                        tokens, shape.layers, channels, kv_kind_name(kind));
  }
  return static_cast<size_t>(total);
}

KvGeometry ordered_llama_geometry(const KvShape& shape, uint32_t cells) {
  KvGeometry geometry;
  geometry.shape = shape;
  geometry.tokens = cells;
  geometry.key = ordered_strides(shape, KvKind::key, cells);
  geometry.value = ordered_strides(shape, KvKind::value, cells);
  return geometry;
}

Result<LlamaStateBuffer> make_llama_state(const KvShape& shape, uint32_t tokens, int32_t seq_id) {
  KVCODEC_TRY(const size_t size, llama_state_bytes(shape, tokens));
  LlamaStateBuffer buffer;
  buffer.bytes.resize(size);
  buffer.geometry = ordered_llama_geometry(shape, tokens);

  ByteWriter head;
  head.put(kLlamaStateMagic);
  head.put(seq_id);
  head.put(uint32_t{1});
  head.put(tokens);
  for (uint32_t position = 0; position < tokens; ++position) {
    head.put(static_cast<int32_t>(position));
    head.put(uint32_t{1});
    head.put(seq_id);
  }
  head.put(uint32_t{0});
  head.put(shape.layers);
  std::memcpy(buffer.bytes.data(), head.bytes().data(), head.size());

  for (KvKind kind : kKvKinds) {
    if (shape.head_dim(kind) == 0) continue;
    const KvGeometry::Strides& strides = buffer.geometry.strides(kind);
    for (uint32_t layer = 0; layer < shape.layers; ++layer)
      write_tensor_header(
          buffer.bytes.data() + strides.offset + layer * strides.layer - kTensorHeaderBytes, shape,
          kind);
  }
  return buffer;
}

Status truncate_llama_state(LlamaStateBuffer& buffer, uint32_t tokens) {
  const KvGeometry old = buffer.geometry;
  if (tokens == 0 || tokens > old.tokens)
    return make_error(ErrorCode::invalid_argument,
                      "llama state: cut to {} tokens: expected 1 to {}", tokens, old.tokens);
  if (tokens == old.tokens) return ok_status();
  if (!old.block_table.empty())
    return make_error(ErrorCode::unsupported,
                      "llama state: cut to {} tokens: cells are not in order of position", tokens);
  buffer.geometry = ordered_llama_geometry(old.shape, tokens);

  // Everything moves towards the front, so that no byte is overwritten before it was moved.
  std::byte* const bytes = buffer.bytes.data();
  std::memcpy(bytes + kPreambleBytes - sizeof tokens, &tokens, sizeof tokens);
  std::memmove(bytes + kPreambleBytes + tokens * kCellBytes,
               bytes + kPreambleBytes + old.tokens * kCellBytes, kSectionBytes);
  size_t end = kPreambleBytes + tokens * kCellBytes + kSectionBytes;
  for (KvKind kind : kKvKinds) {
    if (old.shape.head_dim(kind) == 0) continue;
    const KvGeometry::Strides& from = old.strides(kind);
    const KvGeometry::Strides& to = buffer.geometry.strides(kind);
    const size_t moved = kTensorHeaderBytes + tokens * to.token;
    for (uint32_t layer = 0; layer < old.shape.layers; ++layer) {
      end = to.offset - kTensorHeaderBytes + layer * to.layer;
      std::memmove(bytes + end, bytes + from.offset - kTensorHeaderBytes + layer * from.layer,
                   moved);
      end += moved;
    }
  }
  buffer.bytes.resize(end);
  return ok_status();
}

}  // namespace kvcodec
