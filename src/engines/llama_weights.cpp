// SPDX-License-Identifier: Apache-2.0
#include "engines/llama_weights.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "engines/llama_traits.h"

namespace kvcodec {
namespace {

constexpr std::string_view kArchitectures[] = {"llama", "qwen2"};
// Every tensor of those architectures that the computation knows.
const char kKnownTensor[] =
    "token_embd\\.weight|output(_norm)?\\.weight|blk\\.\\d+\\.((attn|ffn)_norm|"
    "attn_output|ffn_(gate|up|down))\\.weight|blk\\.\\d+\\.attn_[qkv]\\.(weight|bias)";

class LlamaWeights final : public DecoderWeights {
 public:
  LlamaWeights(std::string path, GgufPtr gguf)
      : path_(std::move(path)), gguf_(std::move(gguf)), file_(path_, std::ios::binary) {}

  Status read_config(const KvShape& shape, const Rope& rope) {
    config_.layers = shape.layers;
    config_.kv_heads = shape.kv_heads;
    config_.head_dim = shape.key_dim;
    config_.rope = rope;
    config_.norm_epsilon =
        static_cast<float>(llama_number(*gguf_, "attention.layer_norm_rms_epsilon").value_or(0));
    const auto count = [this](const char* name) {
      return static_cast<uint32_t>(llama_number(*gguf_, name).value_or(0));
    };
    config_.width = count("embedding_length");
    config_.heads = count("attention.head_count");
    config_.hidden = count("feed_forward_length");
    const int64_t table = gguf_find_tensor(gguf_.get(), "token_embd.weight");
    if (config_.width == 0 || config_.heads % shape.kv_heads != 0 || config_.hidden == 0 ||
        shape.key_dim != shape.value_dim || !(config_.norm_epsilon > 0) || table < 0)
      return make_error(ErrorCode::unsupported, "model {}: not a plain llama decoder", path_);
    const size_t row = row_bytes(gguf_get_tensor_type(gguf_.get(), table), config_.width);
    config_.vocabulary =
        static_cast<uint32_t>(gguf_get_tensor_size(gguf_.get(), table) / std::max<size_t>(row, 1));
    return ok_status();
  }

  const DecoderConfig& config() const override { return config_; }

  Result<DecoderLayer> layer(uint32_t index) const override {
    const size_t width = config_.width, q = size_t{config_.heads} * config_.head_dim;
    const size_t kv = size_t{config_.kv_heads} * config_.head_dim, hidden = config_.hidden;
    DecoderLayer w;
    const auto read = [&](const char* name, size_t count, std::vector<float>& out) -> Status {
      KVCODEC_TRY(out, tensor(fmt::format("blk.{}.{}", index, name), count));
      return ok_status();
    };
    KVCODEC_CHECK(read("attn_norm.weight", width, w.attention_norm));
    KVCODEC_CHECK(read("attn_q.weight", q * width, w.query));
    KVCODEC_CHECK(read("attn_k.weight", kv * width, w.key));
    KVCODEC_CHECK(read("attn_v.weight", kv * width, w.value));
    KVCODEC_CHECK(read("attn_output.weight", width * q, w.output));
    KVCODEC_CHECK(read("ffn_norm.weight", width, w.hidden_norm));
    KVCODEC_CHECK(read("ffn_gate.weight", hidden * width, w.gate));
    KVCODEC_CHECK(read("ffn_up.weight", hidden * width, w.up));
    KVCODEC_CHECK(read("ffn_down.weight", width * hidden, w.down));
    if (gguf_find_tensor(gguf_.get(), fmt::format("blk.{}.attn_q.bias", index).c_str()) >= 0) {
      KVCODEC_CHECK(read("attn_q.bias", q, w.query_bias));
      KVCODEC_CHECK(read("attn_k.bias", kv, w.key_bias));
      KVCODEC_CHECK(read("attn_v.bias", kv, w.value_bias));
    }
    return w;
  }

  Result<std::vector<float>> embedding(int32_t token) const override {
    const int64_t id = gguf_find_tensor(gguf_.get(), "token_embd.weight");
    if (token < 0 || static_cast<uint32_t>(token) >= config_.vocabulary)
      return make_error(ErrorCode::invalid_argument, "model {}: token {}: expected 0 to {}", path_,
                        token, config_.vocabulary - 1);
    const size_t row = row_bytes(gguf_get_tensor_type(gguf_.get(), id), config_.width);
    return read_floats(id, row * static_cast<size_t>(token), row, config_.width);
  }

  Result<std::vector<float>> output_norm() const override {
    return tensor("output_norm.weight", config_.width);
  }

  Result<std::vector<float>> output() const override {
    const bool own = gguf_find_tensor(gguf_.get(), "output.weight") >= 0;
    return tensor(own ? "output.weight" : "token_embd.weight",
                  size_t{config_.vocabulary} * config_.width);
  }

 private:
  static size_t row_bytes(ggml_type type, size_t elements) {
    const auto block = static_cast<size_t>(ggml_blck_size(type));
    return elements % block != 0 ? 0 : elements / block * ggml_type_size(type);
  }

  Result<std::vector<float>> tensor(const std::string& name, size_t count) const {
    const int64_t id = gguf_find_tensor(gguf_.get(), name.c_str());
    if (id < 0) return make_error(ErrorCode::unsupported, "model {}: no tensor {}", path_, name);
    const size_t bytes = row_bytes(gguf_get_tensor_type(gguf_.get(), id), count);
    if (bytes == 0 || bytes != gguf_get_tensor_size(gguf_.get(), id))
      return make_error(ErrorCode::unsupported, "model {}: tensor {}: expected {} bytes, found {}",
                        path_, name, bytes, gguf_get_tensor_size(gguf_.get(), id));
    return read_floats(id, 0, bytes, count);
  }

  Result<std::vector<float>> read_floats(int64_t id, size_t begin, size_t bytes,
                                         size_t count) const {
    const ggml_type type = gguf_get_tensor_type(gguf_.get(), id);
    const ggml_type_traits* traits = ggml_get_type_traits(type);
    if (bytes == 0 || (type != GGML_TYPE_F32 && traits->to_float == nullptr))
      return make_error(ErrorCode::unsupported, "model {}: weights of type {}", path_,
                        traits->type_name);
    std::vector<char> raw(bytes);
    const size_t offset =
        gguf_get_data_offset(gguf_.get()) + gguf_get_tensor_offset(gguf_.get(), id) + begin;
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset));
    if (!file_.read(raw.data(), static_cast<std::streamsize>(bytes)))
      return make_error(ErrorCode::io, "model {}: {} bytes at {}: cannot be read", path_, bytes,
                        offset);
    std::vector<float> out(count);
    if (type == GGML_TYPE_F32)
      std::memcpy(out.data(), raw.data(), bytes);
    else
      traits->to_float(raw.data(), out.data(), static_cast<int64_t>(count));
    return out;
  }

  std::string path_;
  GgufPtr gguf_;
  mutable std::ifstream file_;
  DecoderConfig config_;
};

}  // namespace

Result<std::unique_ptr<DecoderWeights>> open_llama_weights(const std::string& path,
                                                           const KvShape& shape, const Rope& rope) {
  KVCODEC_TRY(GgufPtr gguf, open_gguf(path));
  const std::string architecture = llama_architecture(*gguf);
  if (std::find(std::begin(kArchitectures), std::end(kArchitectures), architecture) ==
          std::end(kArchitectures) ||
      rope.style == Rope::Style::none)
    return make_error(ErrorCode::unsupported, "model {}: architecture {}: gradients are not known",
                      path, architecture);
  const std::regex known(kKnownTensor);
  for (int64_t i = 0; i < gguf_get_n_tensors(gguf.get()); ++i) {
    const char* name = gguf_get_tensor_name(gguf.get(), i);
    if (!std::regex_match(name, known))
      return make_error(ErrorCode::unsupported, "model {}: tensor {} is not of a plain decoder",
                        path, name);
  }
  auto weights = std::make_unique<LlamaWeights>(path, std::move(gguf));
  KVCODEC_CHECK(weights->read_config(shape, rope));
  return std::unique_ptr<DecoderWeights>(std::move(weights));
}

}  // namespace kvcodec
