// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engines/llama_runtime.h"
#include "kvcodec/kv.h"
#include "kvcodec/result.h"

// What a GGUF file says about the KV cache of its model.
namespace kvcodec {

// The file's metadata, without its tensors. not_found, corrupt, or unsupported (a part of several).
Result<GgufPtr> open_gguf(const std::string& path);

// unsupported names the property by which the model's cache is not one plain KV cache.
Status check_llama_model(const llama_model& model, const std::string& path);

KvShape llama_kv_shape(const gguf_context& gguf, const llama_model& model, DType dtype);

// general.name, or the file's name. LongRoPE models get the factors that a context of
// context_tokens selects appended, as their keys differ (llama-model.cpp, get_rope_factors).
std::string llama_model_name(const gguf_context& gguf, const std::string& path,
                             uint32_t context_tokens);

struct LlamaRope {
  Rope rope;
  std::string note;  // why style is none
};
// How llama.cpp rotates keys of key_dim elements, where that is the same in every layer and known
// exactly. `type` is llama_model_rope_type().
LlamaRope llama_rope(const gguf_context& gguf, llama_rope_type type, uint32_t key_dim);

// Whether layer 0 of a cache whose tokens are all alike is rotated by `rope`: its keys differ in
// nothing but their position. `last` is the position compared with 0. Requires style not none.
bool keys_rotated_by(const Rope& rope, std::span<const std::byte> memory,
                     const KvGeometry& geometry, uint32_t last);

ggml_type llama_kv_type(DType dtype);

// general.architecture, or nothing.
std::string llama_architecture(const gguf_context& gguf);
// "<architecture>.<name>", where it is a number.
std::optional<double> llama_number(const gguf_context& gguf, std::string_view name);

}  // namespace kvcodec
