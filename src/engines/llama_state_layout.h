// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kvcodec/kv.h"
#include "kvcodec/result.h"

// What reading and writing a sequence state share; the layout itself is in llama_state.h.
namespace kvcodec {

inline constexpr uint32_t kLlamaStateMagic = 0xaf143cd8;  // io_magic of llama-context.cpp
inline constexpr size_t kPreambleBytes = 16;              // magic, seq_id, n_stream, cells
inline constexpr size_t kCellBytes = 12;
inline constexpr size_t kSectionBytes = 8;        // v_trans, layers
inline constexpr size_t kTensorHeaderBytes = 12;  // ggml_type, row_bytes

struct GgmlType {
  int32_t id;
  const char* name;
  std::optional<DType> dtype;  // absent: quantised
};
// Ids of ggml.h that llama.cpp accepts for a KV cache.
inline constexpr GgmlType kGgmlTypes[] = {
    {0, "f32", DType::f32},    {1, "f16", DType::f16},    {30, "bf16", DType::bf16},
    {2, "q4_0", std::nullopt}, {3, "q4_1", std::nullopt}, {6, "q5_0", std::nullopt},
    {7, "q5_1", std::nullopt}, {8, "q8_0", std::nullopt}, {20, "iq4_nl", std::nullopt},
};

uint64_t llama_row_bytes(const KvShape& shape, KvKind kind);

// Bytes of a state, or invalid_argument where there is no such state.
Result<size_t> llama_state_bytes(const KvShape& shape, uint32_t tokens);

// Of a state whose cells are in order of position. Requires llama_state_bytes(shape, cells).
KvGeometry ordered_llama_geometry(const KvShape& shape, uint32_t cells);

}  // namespace kvcodec
