// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcodec/kv.h"
#include "kvcodec/result.h"

// The bytes that llama_state_seq_get_data writes and llama_state_seq_set_data reads, for one
// sequence of a plain KV cache with flash attention on. Read in llama.cpp v0.5.0, state_write of
// src/llama-kv-cache.cpp; little endian, nothing aligned:
//
//   u32 magic 0xaf143cd8, i32 seq_id, u32 n_stream = 1, u32 cells
//   cells times:  i32 position, u32 n_seq = 1, i32 seq_id
//   u32 v_trans = 0, u32 layers
//   layers times: i32 ggml_type, u64 row_bytes, cells rows of kv_heads * key_dim elements
//   layers times: i32 ggml_type, u64 row_bytes, cells rows of kv_heads * value_dim elements
//
// The last part is absent where the cache keeps no values. The bytes carry no version, so a reader
// checks every field, and the engine compares what the library it is linked to writes with what
// make_llama_state writes. No llama.cpp header is needed here.
namespace kvcodec {

struct LlamaState {
  int32_t seq_id = 0;
  KvGeometry geometry;  // over the bytes parsed; token i is the cell of position i
};

// Finds the KV of `shape` in a state that holds the positions 0..n-1, cells in any order.
// corrupt: cut off, trailing bytes, or fields that contradict each other, with the byte offset.
// unsupported: valid for llama.cpp and not for us (transposed values, quantised or extended cells,
// several streams, gaps). invalid_argument: the state of another shape, or an empty one.
// Allocates at most 4 bytes a cell, and nothing before the count fits the bytes.
Result<LlamaState> parse_llama_state(std::span<const std::byte> state, const KvShape& shape);

struct LlamaStateBuffer {
  std::vector<std::byte> bytes;
  KvGeometry geometry;  // over `bytes`
};

// A state of positions 0..tokens-1, in order, with every element zero, to be filled through its
// geometry. invalid_argument where shape or tokens are zero or the size overflows.
Result<LlamaStateBuffer> make_llama_state(const KvShape& shape, uint32_t tokens, int32_t seq_id);

// Drops the positions from `tokens` on, in place. invalid_argument unless 1 <= tokens <= those
// present; unsupported where there is something to drop and cells are not in order of position.
Status truncate_llama_state(LlamaStateBuffer& buffer, uint32_t tokens);

}  // namespace kvcodec
