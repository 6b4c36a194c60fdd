// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcodec/result.h"

namespace kvcodec {

// Element type of a KV cache. Values are part of the format; append only.
enum class DType : uint16_t { f16 = 1, bf16 = 2, f32 = 3 };
size_t dtype_bytes(DType dtype);
const char* dtype_name(DType dtype);  // "f16", "bf16", "f32"

enum class KvKind : uint8_t { key = 0, value = 1 };
inline constexpr KvKind kKvKinds[] = {KvKind::key, KvKind::value};
const char* kv_kind_name(KvKind kind);  // "K", "V"

// What the numbers of one token are, on one tensor-parallel rank.
struct KvShape {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t key_dim = 0;    // elements of one head of one key
  uint32_t value_dim = 0;  // 0 where the cache keeps no values (MLA)
  DType dtype = DType::f16;

  uint32_t head_dim(KvKind kind) const { return kind == KvKind::key ? key_dim : value_dim; }
  // Elements of one token in one layer: kv_heads * head_dim.
  uint32_t channels(KvKind kind) const { return kv_heads * head_dim(kind); }
  // Bytes of one token in all layers, keys and values.
  size_t token_bytes() const;
  bool operator==(const KvShape&) const = default;
};

// How keys were rotated, so that int8 and the calibrated tiers can undo it. Frequencies are exact
// fixed-point phases: rotating element pair i of a key at position p turns it by
// p * phase_steps[i] / 2^64 of a full turn (mod 2^64). Any scaling variant (linear, NTK, YaRN,
// Llama 3) is only another set of steps. See docs/format.md, "Rotation".
struct Rope {
  // Values are part of the format; append only.
  enum class Style : uint8_t {
    none = 0,
    interleaved = 1,  // pairs (2i, 2i+1): llama.cpp NORM, GPT-J
    neox = 2,         // pairs (i, i + rotary_dims/2): llama.cpp NEOX, Hugging Face
  };
  Style style = Style::none;
  uint32_t rotary_dims = 0;           // leading elements of a head that are rotated; even
  std::vector<uint64_t> phase_steps;  // rotary_dims / 2 of them
  bool operator==(const Rope&) const = default;
};

// Steps from angular frequencies in radians a token (the usual base^(-2i/d), after scaling).
// Requires finite values with |f| < 2 pi; invalid_argument otherwise.
Result<Rope> make_rope(Rope::Style style, std::span<const double> radians_per_token);
// The unscaled steps of RoPE (Su et al., arXiv 2104.09864): base^(-2i/rotary_dims).
Result<Rope> make_rope(Rope::Style style, uint32_t rotary_dims, double base);

// Where the elements of a KV cache are in a piece of memory: the only thing an engine adapter
// fills. The element (kind, layer, token, head, dim) is at byte
//   s.offset + layer*s.layer + block_of(token)*block_stride + (token % block_tokens)*s.token
//   + head*s.head + dim*s.dim,        s = strides(kind),
// where block_of(token) = block_table[token / block_tokens], or token / block_tokens where the
// table is empty. Strides are bytes and need no alignment.
struct KvGeometry {
  struct Strides {
    size_t offset = 0, layer = 0, token = 0, head = 0, dim = 0;
  };
  KvShape shape;
  uint32_t tokens = 0;
  Strides key, value;
  uint32_t block_tokens = 0;  // 0: one block holds all tokens
  size_t block_stride = 0;
  std::vector<uint32_t> block_table;

  const Strides& strides(KvKind kind) const { return kind == KvKind::key ? key : value; }
  size_t element_offset(KvKind kind, uint32_t layer, uint32_t token, uint32_t head,
                        uint32_t dim) const;
  // Every element lies inside `memory_bytes`; invalid_argument names the first that does not.
  Status validate(size_t memory_bytes) const;
  // The canonical order [layer][K|V][token][head][dim], nothing between.
  static KvGeometry contiguous(const KvShape& shape, uint32_t tokens);
  size_t contiguous_bytes() const { return shape.token_bytes() * tokens; }
};

// Borrowed memory with its geometry. The owner keeps both alive and, for a target, writes nothing
// to it during the call.
struct KvSource {
  std::span<const std::byte> memory;
  const KvGeometry* geometry = nullptr;
};
struct KvTarget {
  std::span<std::byte> memory;
  const KvGeometry* geometry = nullptr;
};

// Tokens [first, first + count).
struct TokenRange {
  uint32_t first = 0;
  uint32_t count = 0;
  bool operator==(const TokenRange&) const = default;
};

}  // namespace kvcodec
