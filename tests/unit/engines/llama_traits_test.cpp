// SPDX-License-Identifier: Apache-2.0
#include "engines/llama_traits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

namespace kvcodec {
namespace {

// A file's metadata, written here. The architecture is the last one given.
class Metadata {
 public:
  explicit Metadata(const char* architecture = "llama") : gguf_(gguf_init_empty()) {
    gguf_set_val_str(gguf_.get(), "general.architecture", architecture);
    gguf_set_val_f32(gguf_.get(), "llama.rope.freq_base", 500000);
    gguf_set_val_u32(gguf_.get(), "llama.rope.dimension_count", 8);
  }
  Metadata& set(const char* key, float value) {
    gguf_set_val_f32(gguf_.get(), key, value);
    return *this;
  }
  Metadata& set(const char* key, const char* value) {
    gguf_set_val_str(gguf_.get(), key, value);
    return *this;
  }
  Metadata& add_tensor(const char* name) {
    ggml_tensor* tensor = ggml_new_tensor_1d(tensors_.get(), GGML_TYPE_F32, 4);
    ggml_set_name(tensor, name);
    gguf_add_tensor(gguf_.get(), tensor);
    return *this;
  }
  const gguf_context& operator*() const { return *gguf_; }

 private:
  GgufPtr gguf_;
  std::unique_ptr<ggml_context, CDeleter<ggml_free>> tensors_{
      ggml_init({.mem_size = 4 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true})};
};

Rope expected(Rope::Style style, double base, double scale) {
  std::vector<double> radians(4);
  for (size_t i = 0; i < 4; ++i)
    radians[i] = scale * std::pow(base, -2.0 * static_cast<double>(i) / 8);
  return *make_rope(style, radians);
}

void expect_rope(const Metadata& metadata, const Rope& rope) {
  const LlamaRope found = llama_rope(*metadata, LLAMA_ROPE_TYPE_NORM, 16);
  EXPECT_EQ(found.note, "");
  EXPECT_EQ(found.rope, rope);
}

void expect_unknown(const Metadata& metadata, const std::string& why,
                    llama_rope_type type = LLAMA_ROPE_TYPE_NORM) {
  const LlamaRope found = llama_rope(*metadata, type, 16);
  EXPECT_EQ(found.rope, Rope{});
  EXPECT_NE(found.note.find(why), std::string::npos) << found.note;
}

TEST(LlamaTraits, RotatesByBaseAndStyle) {
  const Metadata plain;
  expect_rope(plain, expected(Rope::Style::interleaved, 500000, 1));
  const LlamaRope neox = llama_rope(*plain, LLAMA_ROPE_TYPE_NEOX, 16);
  EXPECT_EQ(neox.rope, expected(Rope::Style::neox, 500000, 1));
  // An architecture whose keys are absent: base 10,000, all elements.
  const LlamaRope absent = llama_rope(*Metadata("qwen2"), LLAMA_ROPE_TYPE_NEOX, 8);
  EXPECT_EQ(absent.rope, expected(Rope::Style::neox, 10000, 1));
}

TEST(LlamaTraits, ScalesFrequenciesLinearly) {
  const Rope quarter = expected(Rope::Style::interleaved, 500000, 0.25);
  expect_rope(Metadata().set("llama.rope.scaling.factor", 4.0f), quarter);
  expect_rope(Metadata().set("llama.rope.scale_linear", 4.0f), quarter);
  expect_rope(
      Metadata().set("llama.rope.scaling.factor", 4.0f).set("llama.rope.scaling.type", "linear"),
      quarter);
  const Rope whole = expected(Rope::Style::interleaved, 500000, 1);
  expect_rope(
      Metadata().set("llama.rope.scaling.factor", 4.0f).set("llama.rope.scaling.type", "none"),
      whole);
  expect_rope(Metadata().set("llama.rope.scaling.factor", 0.0f), whole);
}

TEST(LlamaTraits, SaysWhyARotationIsUnknown) {
  expect_unknown(Metadata(), "does not rotate", LLAMA_ROPE_TYPE_NONE);
  expect_unknown(Metadata().set("llama.rope.scaling.type", "yarn"), "rope.scaling.type is yarn");
  expect_unknown(Metadata().set("llama.rope.scaling.attn_factor", 1.5f), "attn_factor is 1.5");
  expect_unknown(Metadata().add_tensor("rope_freqs.weight"), "rope_freqs.weight");
  expect_unknown(Metadata().add_tensor("rope_factors_short.weight"), "rope_factors_short.weight");
  expect_unknown(Metadata("smollm3"), "architecture smollm3");
  expect_unknown(Metadata().set("llama.rope.dimension_count", 18.0f), "rope.dimension_count 18");
  expect_unknown(Metadata().set("llama.rope.dimension_count", 7.0f), "rope.dimension_count 7");
  expect_unknown(Metadata().set("llama.rope.freq_base", -1.0f), "rope.freq_base -1");
}

TEST(LlamaTraits, NamesTheFactorsOfLongRope) {
  const std::string path = "/models/tiny.gguf";
  EXPECT_EQ(llama_model_name(*Metadata(), path, 512), "tiny");
  EXPECT_EQ(llama_model_name(*Metadata().set("general.name", "Tiny"), path, 512), "Tiny");
  Metadata both;
  both.set("llama.context_length", 4096.0f).add_tensor("rope_factors_long.weight");
  EXPECT_EQ(llama_model_name(*both, path, 4096), "tiny (short RoPE factors)");
  EXPECT_EQ(llama_model_name(*both, path, 4097), "tiny (long RoPE factors)");
  both.set("llama.rope.scaling.original_context_length", 1024.0f);
  EXPECT_EQ(llama_model_name(*both, path, 4096), "tiny (long RoPE factors)");
}

// Two tokens alike at positions 0 and 3: one head of 6 elements, the first 4 rotated.
TEST(LlamaTraits, ChecksARotationOnKeys) {
  const KvShape shape = {
      .layers = 1, .kv_heads = 1, .key_dim = 6, .value_dim = 6, .dtype = DType::f32};
  const KvGeometry geometry = KvGeometry::contiguous(shape, 4);
  const float keys[6] = {1.0f, -2.0f, 0.5f, 3.0f, 0.25f, -4.0f};
  const auto rotate = [&](Rope::Style style, double base) {
    std::vector<float> memory(geometry.contiguous_bytes() / sizeof(float), 0.0f);
    for (uint32_t token : {0u, 3u}) {
      float* out = memory.data() + token * 6;
      std::copy(keys, keys + 6, out);
      for (size_t i = 0; i < 2; ++i) {
        const size_t a = style == Rope::Style::neox ? i : 2 * i;
        const size_t b = style == Rope::Style::neox ? i + 2 : 2 * i + 1;
        const double angle = token * std::pow(base, -static_cast<double>(i) / 2);
        out[a] = static_cast<float>(keys[a] * std::cos(angle) - keys[b] * std::sin(angle));
        out[b] = static_cast<float>(keys[a] * std::sin(angle) + keys[b] * std::cos(angle));
      }
    }
    return memory;
  };
  const auto agrees = [&](const Rope& rope, const std::vector<float>& memory) {
    return keys_rotated_by(rope, std::as_bytes(std::span(memory)), geometry, 3);
  };
  for (auto style : {Rope::Style::interleaved, Rope::Style::neox}) {
    const auto memory = rotate(style, 100);
    const auto other = style == Rope::Style::neox ? Rope::Style::interleaved : Rope::Style::neox;
    EXPECT_TRUE(agrees(*make_rope(style, 4, 100), memory));
    EXPECT_FALSE(agrees(*make_rope(other, 4, 100), memory));
    EXPECT_FALSE(agrees(*make_rope(style, 4, 60), memory));
    EXPECT_FALSE(agrees(*make_rope(style, 2, 100), memory));
    auto moved = memory;
    moved[3 * 6 + 5] += 0.5f;
    EXPECT_FALSE(agrees(*make_rope(style, 4, 100), moved));
  }
}

TEST(LlamaTraits, OpensOnlyWholeFiles) {
  const std::string path = testing::TempDir() + "/kvcodec_split.gguf";
  Metadata metadata;
  gguf_context* gguf = const_cast<gguf_context*>(&*metadata);
  gguf_set_val_u16(gguf, "split.count", 3);
  ASSERT_TRUE(gguf_write_to_file(gguf, path.c_str(), true));
  const auto part = open_gguf(path);
  ASSERT_FALSE(part.ok());
  EXPECT_EQ(part.error().code, ErrorCode::unsupported);
  EXPECT_NE(part.error().message.find("one of 3 files"), std::string::npos);
  gguf_set_val_u16(gguf, "split.count", 1);
  ASSERT_TRUE(gguf_write_to_file(gguf, path.c_str(), true));
  EXPECT_TRUE(open_gguf(path).ok());
  std::remove(path.c_str());
}

}  // namespace
}  // namespace kvcodec
