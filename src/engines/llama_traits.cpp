// SPDX-License-Identifier: Apache-2.0
#include "engines/llama_traits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numbers>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace kvcodec {
namespace {

// Architectures that rotate the keys of every layer alike, by ggml_rope_ext with the model's base
// and scale (read in src/models/<name>.cpp of llama.cpp v0.5.0). Others may skip layers (SmolLM3,
// Llama 4), scale alpha (Hunyuan) or use a second base (Gemma 3).
constexpr std::string_view kUniformRope[] = {
    "llama",      "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma", "internlm2",
    "starcoder2", "phi2",  "mistral3", "olmoe", "stablelm", "arcee", "gptneox"};

std::optional<double> number(const gguf_context& gguf, const std::string& key) {
  const int64_t id = gguf_find_key(&gguf, key.c_str());
  if (id < 0) return std::nullopt;
  switch (gguf_get_kv_type(&gguf, id)) {
    case GGUF_TYPE_UINT8: return gguf_get_val_u8(&gguf, id);
    case GGUF_TYPE_INT8: return gguf_get_val_i8(&gguf, id);
    case GGUF_TYPE_UINT16: return gguf_get_val_u16(&gguf, id);
    case GGUF_TYPE_INT16: return gguf_get_val_i16(&gguf, id);
    case GGUF_TYPE_UINT32: return gguf_get_val_u32(&gguf, id);
    case GGUF_TYPE_INT32: return gguf_get_val_i32(&gguf, id);
    case GGUF_TYPE_FLOAT32: return gguf_get_val_f32(&gguf, id);
    case GGUF_TYPE_UINT64: return static_cast<double>(gguf_get_val_u64(&gguf, id));
    case GGUF_TYPE_INT64: return static_cast<double>(gguf_get_val_i64(&gguf, id));
    case GGUF_TYPE_FLOAT64: return gguf_get_val_f64(&gguf, id);
    default: return std::nullopt;
  }
}

std::string text(const gguf_context& gguf, const std::string& key) {
  const int64_t id = gguf_find_key(&gguf, key.c_str());
  if (id < 0 || gguf_get_kv_type(&gguf, id) != GGUF_TYPE_STRING) return "";
  return gguf_get_val_str(&gguf, id);
}

// "<architecture>.<name>", as GGUF names what belongs to one architecture.
std::string key_of(const gguf_context& gguf, std::string_view name) {
  return fmt::format("{}.{}", text(gguf, "general.architecture"), name);
}

bool has_tensor(const gguf_context& gguf, const char* name) {
  return gguf_find_tensor(&gguf, name) >= 0;
}

// Why the rotation is not known exactly; empty where it is.
std::string unknown_rotation(const gguf_context& gguf) {
  const std::string architecture = text(gguf, "general.architecture");
  if (std::find(std::begin(kUniformRope), std::end(kUniformRope), architecture) ==
      std::end(kUniformRope))
    return fmt::format("the rotation of architecture {} is not known to be equal in all layers",
                       architecture);
  for (const char* name :
       {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}) {
    if (has_tensor(gguf, name)) return fmt::format("frequencies are scaled by tensor {}", name);
  }
  // llama.cpp takes an absent type for "linear" and an absent factor for 1.
  const std::string scaling = text(gguf, key_of(gguf, "rope.scaling.type"));
  if (scaling != "" && scaling != "none" && scaling != "linear")
    return fmt::format("rope.scaling.type is {}", scaling);
  const double magnitude = number(gguf, key_of(gguf, "rope.scaling.attn_factor")).value_or(1);
  if (magnitude != 1) return fmt::format("rope.scaling.attn_factor is {}", magnitude);
  return "";
}

// As llama-model.cpp and llama-context.cpp derive it: the factor of linear scaling, under its new
// or its old name, 0 meaning 1, unless the type is "none".
double frequency_scale(const gguf_context& gguf) {
  if (text(gguf, key_of(gguf, "rope.scaling.type")) == "none") return 1;
  auto factor = number(gguf, key_of(gguf, "rope.scaling.factor"));
  if (!factor) factor = number(gguf, key_of(gguf, "rope.scale_linear"));
  return factor.value_or(0) == 0 ? 1 : 1 / *factor;
}

float element(std::span<const std::byte> memory, const KvGeometry& geometry, uint32_t token,
              uint32_t head, uint32_t dim) {
  const std::byte* at = memory.data() + geometry.element_offset(KvKind::key, 0, token, head, dim);
  switch (geometry.shape.dtype) {
    case DType::f16: {
      ggml_fp16_t half;
      std::memcpy(&half, at, sizeof half);
      return ggml_fp16_to_fp32(half);
    }
    case DType::bf16: {
      ggml_bf16_t half;
      std::memcpy(&half, at, sizeof half);
      return ggml_bf16_to_fp32(half);
    }
    case DType::f32: break;
  }
  float whole;
  std::memcpy(&whole, at, sizeof whole);
  return whole;
}

}  // namespace

Result<GgufPtr> open_gguf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return make_error(ErrorCode::not_found, "model {}: no such file", path);
  LlamaErrors errors;
  GgufPtr gguf(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
  if (!gguf)
    return make_error(ErrorCode::corrupt, "model {}: not a readable GGUF file: {}", path,
                      errors.text());
  const double parts = number(*gguf, "split.count").value_or(1);
  if (parts > 1)
    return make_error(ErrorCode::unsupported,
                      "model {}: one of {} files; merge them with llama-gguf-split --merge", path,
                      parts);
  return gguf;
}

Status check_llama_model(const llama_model& model, const std::string& path) {
  const char* reason = nullptr;
  const llama_rope_type rope = llama_model_rope_type(&model);
  if (llama_model_is_recurrent(&model)) reason = "it is recurrent";
  if (llama_model_is_hybrid(&model)) reason = "it has recurrent layers";
  if (llama_model_is_diffusion(&model)) reason = "it is a diffusion model";
  if (llama_model_has_encoder(&model) || !llama_model_has_decoder(&model))
    reason = "it is not decoder-only";
  if (llama_model_n_swa(&model) > 0) reason = "it has sliding-window layers";
  if (rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE ||
      rope == LLAMA_ROPE_TYPE_VISION)
    reason = "its positions are multi-dimensional (M-RoPE)";
  if (reason == nullptr) return ok_status();
  return make_error(ErrorCode::unsupported,
                    "model {}: {}; only decoders with one plain KV cache are supported", path,
                    reason);
}

KvShape llama_kv_shape(const gguf_context& gguf, const llama_model& model, DType dtype) {
  const int32_t heads = std::max(1, llama_model_n_head(&model));
  const int32_t width = llama_model_n_embd(&model) / heads;
  const double key_dim = number(gguf, key_of(gguf, "attention.key_length")).value_or(width);
  const double value_dim = number(gguf, key_of(gguf, "attention.value_length")).value_or(width);
  return {.layers = static_cast<uint32_t>(llama_model_n_layer(&model)),
          .kv_heads = static_cast<uint32_t>(llama_model_n_head_kv(&model)),
          .key_dim = static_cast<uint32_t>(key_dim),
          .value_dim = static_cast<uint32_t>(value_dim),
          .dtype = dtype};
}

std::string llama_model_name(const gguf_context& gguf, const std::string& path,
                             uint32_t context_tokens) {
  std::string name = text(gguf, "general.name");
  if (name.empty()) name = std::filesystem::path(path).stem().string();
  if (has_tensor(gguf, "rope_factors_long.weight")) {
    const double trained = number(gguf, key_of(gguf, "context_length")).value_or(0);
    const double original =
        number(gguf, key_of(gguf, "rope.scaling.original_context_length")).value_or(trained);
    name += context_tokens > original ? " (long RoPE factors)" : " (short RoPE factors)";
  }
  return name;
}

LlamaRope llama_rope(const gguf_context& gguf, llama_rope_type type, uint32_t key_dim) {
  LlamaRope out;
  if (type != LLAMA_ROPE_TYPE_NORM && type != LLAMA_ROPE_TYPE_NEOX) {
    out.note = "the model does not rotate its keys by pairs";
    return out;
  }
  out.note = unknown_rotation(gguf);
  if (!out.note.empty()) return out;

  const double base = number(gguf, key_of(gguf, "rope.freq_base")).value_or(10000);
  const double dims = number(gguf, key_of(gguf, "rope.dimension_count")).value_or(key_dim);
  // ggml turns whole pairs of leading elements.
  if (!(dims >= 2 && dims <= key_dim && std::fmod(dims, 2) == 0 && base > 0)) {
    out.note = fmt::format("rope.dimension_count {} and rope.freq_base {} do not fit {} elements",
                           dims, base, key_dim);
    return out;
  }
  const double scale = frequency_scale(gguf);
  std::vector<double> radians(static_cast<size_t>(dims) / 2);
  for (size_t i = 0; i < radians.size(); ++i)
    radians[i] = scale * std::pow(base, -2.0 * static_cast<double>(i) / dims);
  const auto style = type == LLAMA_ROPE_TYPE_NORM ? Rope::Style::interleaved : Rope::Style::neox;
  auto rope = make_rope(style, radians);
  if (rope.ok())
    out.rope = *std::move(rope);
  else
    out.note = rope.error().message;
  return out;
}

bool keys_rotated_by(const Rope& rope, std::span<const std::byte> memory,
                     const KvGeometry& geometry, uint32_t last) {
  const uint32_t pairs = rope.rotary_dims / 2;
  const bool neox = rope.style == Rope::Style::neox;
  // Relative to each pair, as one wrong frequency must not hide behind larger pairs. bf16 rounds
  // by 1/256; the second term is for elements near zero.
  const auto differs = [](double error, double size) { return error > 0.02 * size + 1e-3; };
  for (uint32_t head = 0; head < geometry.shape.kv_heads; ++head) {
    const auto key = [&](uint32_t token, uint32_t dim) {
      return double{element(memory, geometry, token, head, dim)};
    };
    for (uint32_t i = 0; i < pairs; ++i) {
      const uint32_t a = neox ? i : 2 * i, b = neox ? i + pairs : 2 * i + 1;
      const double turns = std::ldexp(static_cast<double>(rope.phase_steps[i] * last), -64);
      const double cosine = std::cos(turns * 2 * std::numbers::pi);
      const double sine = std::sin(turns * 2 * std::numbers::pi);
      const double x = key(0, a), y = key(0, b);
      const double error = std::hypot(key(last, a) - (x * cosine - y * sine),
                                      key(last, b) - (x * sine + y * cosine));
      if (differs(error, std::hypot(x, y))) return false;
    }
    for (uint32_t dim = rope.rotary_dims; dim < geometry.shape.key_dim; ++dim) {
      if (differs(std::abs(key(last, dim) - key(0, dim)), std::abs(key(0, dim)))) return false;
    }
  }
  return true;
}

ggml_type llama_kv_type(DType dtype) {
  switch (dtype) {
    case DType::f16: return GGML_TYPE_F16;
    case DType::bf16: return GGML_TYPE_BF16;
    case DType::f32: break;
  }
  return GGML_TYPE_F32;
}

std::string llama_architecture(const gguf_context& gguf) {
  return text(gguf, "general.architecture");
}

std::optional<double> llama_number(const gguf_context& gguf, std::string_view name) {
  return number(gguf, key_of(gguf, name));
}

}  // namespace kvcodec
