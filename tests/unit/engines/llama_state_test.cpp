// SPDX-License-Identifier: Apache-2.0
#include "engines/llama_state.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "unit/engines/code_of.h"
#include "unit/engines/raw_llama_state.h"

namespace kvcodec {
namespace {

// Every element is where the geometry says.
void expect_values(std::span<const std::byte> memory, const KvGeometry& geometry, uint32_t tokens) {
  ASSERT_EQ(geometry.tokens, tokens);
  ASSERT_TRUE(geometry.validate(memory.size()).ok());
  const KvShape& shape = geometry.shape;
  for (KvKind kind : kKvKinds) {
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (uint32_t token = 0; token < tokens; ++token) {
        for (uint32_t channel = 0; channel < shape.channels(kind); ++channel) {
          const uint32_t head = channel / shape.head_dim(kind);
          const uint32_t dim = channel % shape.head_dim(kind);
          uint16_t found = 0;
          std::memcpy(&found,
                      memory.data() + geometry.element_offset(kind, layer, token, head, dim), 2);
          ASSERT_EQ(found, RawLlamaState::value(kind, layer, token, channel))
              << kv_kind_name(kind) << " layer " << layer << " token " << token << " channel "
              << channel;
        }
      }
    }
  }
}

TEST(LlamaState, FindsEveryElement) {
  RawLlamaState raw(kSmallShape, 5);
  raw.seq_id = 3;
  const auto bytes = raw.bytes();
  const auto state = parse_llama_state(bytes, kSmallShape);
  ASSERT_TRUE(state.ok()) << state.error().message;
  EXPECT_EQ(state->seq_id, 3);
  EXPECT_EQ(state->geometry.shape, kSmallShape);
  EXPECT_TRUE(state->geometry.block_table.empty());
  expect_values(bytes, state->geometry, 5);
}

TEST(LlamaState, FindsCellsOutOfOrder) {
  RawLlamaState raw(kSmallShape, 5);
  raw.positions = {3, 0, 4, 2, 1};
  const auto bytes = raw.bytes();
  const auto state = parse_llama_state(bytes, kSmallShape);
  ASSERT_TRUE(state.ok()) << state.error().message;
  EXPECT_EQ(state->geometry.block_table, (std::vector<uint32_t>{1, 4, 3, 0, 2}));
  expect_values(bytes, state->geometry, 5);
}

TEST(LlamaState, FindsKeysAndValuesOfDifferentSizes) {
  KvShape shape = kSmallShape;
  shape.value_dim = 2;
  RawLlamaState raw(shape, 4);
  auto bytes = raw.bytes();
  auto state = parse_llama_state(bytes, shape);
  ASSERT_TRUE(state.ok()) << state.error().message;
  expect_values(bytes, state->geometry, 4);

  raw.positions = {1, 0, 2, 3};
  bytes = raw.bytes();
  state = parse_llama_state(bytes, shape);
  ASSERT_FALSE(state.ok());
  EXPECT_EQ(code_of(state), ErrorCode::unsupported);
}

TEST(LlamaState, FindsKeysOfACacheWithoutValues) {
  KvShape shape = kSmallShape;
  shape.value_dim = 0;
  const auto bytes = RawLlamaState(shape, 4).bytes();
  const auto state = parse_llama_state(bytes, shape);
  ASSERT_TRUE(state.ok()) << state.error().message;
  expect_values(bytes, state->geometry, 4);
  const auto made = make_llama_state(shape, 4, 0);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->bytes.size(), bytes.size());
}

TEST(LlamaState, ReadsEveryElementType) {
  for (const auto& [dtype, ggml_type] :
       {std::pair{DType::f16, 1}, std::pair{DType::bf16, 30}, std::pair{DType::f32, 0}}) {
    KvShape shape = kSmallShape;
    shape.dtype = dtype;
    const auto made = make_llama_state(shape, 2, 0);
    ASSERT_TRUE(made.ok());
    // Type of the first K layer: after 16 bytes, two cells of 12, v_trans and the layer count.
    int32_t type = -1;
    std::memcpy(&type, made->bytes.data() + 16 + 2 * 12 + 8, sizeof type);
    EXPECT_EQ(type, ggml_type);
    const auto state = parse_llama_state(made->bytes, shape);
    ASSERT_TRUE(state.ok()) << state.error().message;
    EXPECT_EQ(state->geometry.key.dim, dtype_bytes(dtype));
  }
}

TEST(LlamaState, MakesWhatLlamaWrites) {
  RawLlamaState raw(kSmallShape, 5);
  raw.seq_id = 2;
  raw.zero_rows = true;
  const auto made = make_llama_state(kSmallShape, 5, 2);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->bytes, raw.bytes());
  const auto state = parse_llama_state(made->bytes, kSmallShape);
  ASSERT_TRUE(state.ok()) << state.error().message;
  for (KvKind kind : kKvKinds) {
    EXPECT_EQ(made->geometry.element_offset(kind, 2, 4, 1, 3),
              state->geometry.element_offset(kind, 2, 4, 1, 3));
  }
}

TEST(LlamaState, MakesNothingWithoutASize) {
  KvShape huge = kSmallShape;
  huge.kv_heads = huge.key_dim = huge.value_dim = UINT32_MAX;
  KvShape deep = kSmallShape;
  deep.layers = UINT32_MAX;
  deep.kv_heads = 1u << 20;
  KvShape headless = kSmallShape;
  headless.kv_heads = 0;
  for (const auto& [shape, tokens] :
       {std::pair{kSmallShape, 0u}, std::pair{huge, 1u}, std::pair{deep, 1u << 30},
        std::pair{headless, 1u}, std::pair{kSmallShape, UINT32_MAX}}) {
    const auto made = make_llama_state(shape, tokens, 0);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(code_of(made), ErrorCode::invalid_argument);
  }
  const auto bytes = RawLlamaState(kSmallShape, 2).bytes();
  EXPECT_EQ(code_of(parse_llama_state(bytes, huge)), ErrorCode::invalid_argument);
}

TEST(LlamaState, TruncatesToEveryLength) {
  for (uint32_t value_dim : {4u, 2u, 0u}) {
    KvShape shape = kSmallShape;
    shape.value_dim = value_dim;
    for (uint32_t tokens = 1; tokens <= 5; ++tokens) {
      LlamaStateBuffer buffer;
      buffer.bytes = RawLlamaState(shape, 5).bytes();
      buffer.geometry = parse_llama_state(buffer.bytes, shape)->geometry;
      ASSERT_TRUE(truncate_llama_state(buffer, tokens).ok());
      EXPECT_EQ(buffer.bytes, RawLlamaState(shape, tokens).bytes()) << tokens << " tokens";
      expect_values(buffer.bytes, buffer.geometry, tokens);
    }
  }
}

TEST(LlamaState, RefusesOtherTruncations) {
  auto made = make_llama_state(kSmallShape, 5, 0);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(code_of(truncate_llama_state(*made, 0)), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(truncate_llama_state(*made, 6)), ErrorCode::invalid_argument);

  RawLlamaState raw(kSmallShape, 3);
  raw.positions = {1, 0, 2};
  LlamaStateBuffer shuffled;
  shuffled.bytes = raw.bytes();
  shuffled.geometry = parse_llama_state(shuffled.bytes, kSmallShape)->geometry;
  EXPECT_EQ(code_of(truncate_llama_state(shuffled, 2)), ErrorCode::unsupported);
  EXPECT_TRUE(truncate_llama_state(shuffled, 3).ok());
  EXPECT_EQ(shuffled.bytes, raw.bytes());
}

}  // namespace
}  // namespace kvcodec
