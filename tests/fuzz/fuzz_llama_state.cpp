// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "engines/llama_state.h"
#include "fuzz/require.h"

// Bytes 0..4 choose the shape expected, the rest is a sequence state. What the parser accepts must
// lie inside the state, and an emitted state of the same shape must have the same bytes outside
// of the rows, and survive truncation.
namespace {

using namespace kvcodec;

void copy_rows(std::span<const std::byte> from, const KvGeometry& geometry, LlamaStateBuffer& to) {
  for (KvKind kind : kKvKinds) {
    const size_t row = geometry.shape.channels(kind) * dtype_bytes(geometry.shape.dtype);
    for (uint32_t layer = 0; layer < geometry.shape.layers && row > 0; ++layer) {
      for (uint32_t token = 0; token < geometry.tokens; ++token)
        std::memcpy(to.bytes.data() + to.geometry.element_offset(kind, layer, token, 0, 0),
                    from.data() + geometry.element_offset(kind, layer, token, 0, 0), row);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr DType kDTypes[] = {DType::f16, DType::bf16, DType::f32};
  if (size < 5) return 0;
  const KvShape shape = {.layers = data[0] % 8u,
                         .kv_heads = data[1] % 8u,
                         .key_dim = data[2] % 16u,
                         .value_dim = data[3] % 16u,
                         .dtype = kDTypes[data[4] % 3]};
  const auto bytes = std::as_bytes(std::span(data + 5, size - 5));
  const auto state = parse_llama_state(bytes, shape);
  if (!state.ok()) return 0;
  const KvGeometry& geometry = state->geometry;
  KVCODEC_REQUIRE(geometry.tokens > 0 && geometry.shape == shape);
  KVCODEC_REQUIRE(geometry.validate(bytes.size()).ok());

  auto made = make_llama_state(shape, geometry.tokens, state->seq_id);
  KVCODEC_REQUIRE(made.ok() && made->bytes.size() == bytes.size());
  copy_rows(bytes, geometry, *made);
  if (geometry.block_table.empty())
    KVCODEC_REQUIRE(std::memcmp(made->bytes.data(), bytes.data(), bytes.size()) == 0);
  KVCODEC_REQUIRE(truncate_llama_state(*made, (geometry.tokens + 1) / 2).ok());
  KVCODEC_REQUIRE(parse_llama_state(made->bytes, shape).ok());
  return 0;
}
