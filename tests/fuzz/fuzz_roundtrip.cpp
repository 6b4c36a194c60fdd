// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "fuzz/require.h"
#include "kvcodec/codec.h"
#include "transform/float_convert.h"

// The first bytes choose shape, layout in memory and options, the others are elements, over and
// over. Tier exact must restore every bit; tier int8 must say invalid_argument for what is not
// finite and restore the rest near to what it was, which encode_chunk itself verifies.
using namespace kvcodec;

namespace {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint32_t between(uint32_t low, uint32_t high) { return low + next() % (high - low + 1); }
  uint8_t next() { return size_ > at_ ? data_[at_++] : 0; }
  // `bytes` bytes of what is left, repeated.
  std::vector<std::byte> fill(size_t bytes) const {
    std::vector<std::byte> filled(bytes);
    const size_t period = size_ - at_;
    for (size_t i = 0; i < bytes && period > 0; ++i)
      filled[i] = static_cast<std::byte>(data_[at_ + i % period]);
    return filled;
  }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

// A paged cache of blocks in reverse order, or a contiguous one.
KvGeometry make_geometry(Input& input, const KvShape& shape, uint32_t tokens) {
  KvGeometry geometry = KvGeometry::contiguous(shape, tokens);
  geometry.block_tokens = input.between(0, 9);
  if (geometry.block_tokens == 0) return geometry;
  const uint32_t blocks = (tokens + geometry.block_tokens - 1) / geometry.block_tokens;
  const KvGeometry block = KvGeometry::contiguous(shape, geometry.block_tokens);
  geometry.key = block.key;
  geometry.value = block.value;
  geometry.block_stride = block.contiguous_bytes();
  for (uint32_t i = 0; i < blocks; ++i) geometry.block_table.push_back(blocks - 1 - i);
  return geometry;
}

size_t memory_bytes(const KvGeometry& geometry) {
  return geometry.block_tokens == 0 ? geometry.contiguous_bytes()
                                    : geometry.block_table.size() * geometry.block_stride;
}

EncodeOptions make_options(Input& input, const KvShape& shape) {
  EncodeOptions options;
  options.tier = input.next() % 2 ? Tier::exact : Tier::int8;
  options.sink_tokens = input.between(0, 5);
  options.max_picture_height = input.next() % 2 ? 144 : 2048;
  options.threads = 1;
  const uint32_t style = input.between(0, 2);
  if (style > 0 && shape.key_dim >= 2) {
    options.rope.style = static_cast<Rope::Style>(style);
    options.rope.rotary_dims = 2 * input.between(1, shape.key_dim / 2);
    for (uint32_t i = 0; i < options.rope.rotary_dims / 2; ++i)
      options.rope.phase_steps.push_back(uint64_t{input.next()} << (56 - i % 32));
  }
  return options;
}

bool is_finite(const KvSource& source, TokenRange range) {
  const KvShape& shape = source.geometry->shape;
  for (KvKind kind : kKvKinds) {
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (uint32_t i = 0; i < range.count * shape.channels(kind); ++i) {
        const uint32_t token = range.first + i / shape.channels(kind);
        const uint32_t channel = i % shape.channels(kind);
        const uint32_t dim = shape.head_dim(kind);
        float value = 0;
        transform::to_floats(shape.dtype,
                             &source.memory[source.geometry->element_offset(
                                 kind, layer, token, channel / dim, channel % dim)],
                             1, &value);
        if (!std::isfinite(value)) return false;
      }
    }
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const KvShape shape = {input.between(1, 3), input.between(1, 3), input.between(1, 60),
                         input.between(0, 20), static_cast<DType>(input.between(1, 3))};
  const uint32_t tokens = input.between(1, 40);
  const uint32_t first = input.between(0, tokens - 1);
  const TokenRange chunk = {first, input.between(1, tokens - first)};
  const KvGeometry geometry = make_geometry(input, shape, tokens);
  const EncodeOptions options = make_options(input, shape);
  ChunkId id;
  id.first_token = uint32_t{input.next()} << input.between(0, 20);
  const std::vector<std::byte> values = input.fill(memory_bytes(geometry));
  const KvSource source = {values, &geometry};

  const auto object = encode_chunk(source, chunk, id, options);
  if (!object.ok()) {
    KVCODEC_REQUIRE(object.error().code == ErrorCode::invalid_argument);
    KVCODEC_REQUIRE(options.tier == Tier::int8);
    // Finite numbers are refused only where undoing the rotation makes one infinite.
    KVCODEC_REQUIRE(!is_finite(source, chunk) || options.rope.style != Rope::Style::none);
    return 0;
  }
  const auto again = encode_chunk(source, chunk, id, options);
  KVCODEC_REQUIRE(again.ok() && *again == *object);

  // Restored over a copy, the memory is what it was; next to the chunk nothing is written.
  std::vector<std::byte> memory = values;
  DecodeOptions decode;
  decode.expected = &id;
  decode.threads = 1;
  KVCODEC_REQUIRE(decode_chunk(*object, {memory, &geometry}, chunk.first, decode).ok());
  KVCODEC_REQUIRE(options.tier != Tier::exact || memory == values);
  const std::vector<std::byte> blank(values.size(), std::byte{0xC3});
  std::vector<std::byte> erased = blank;
  KVCODEC_REQUIRE(decode_chunk(*object, {erased, &geometry}, chunk.first, decode).ok());
  for (KvKind kind : kKvKinds) {
    for (uint32_t token = 0; token < tokens && shape.channels(kind) > 0; ++token) {
      const bool inside = token >= chunk.first && token < chunk.first + chunk.count;
      const size_t at = geometry.element_offset(kind, shape.layers - 1, token, 0, 0);
      const auto& from = inside ? memory : blank;
      KVCODEC_REQUIRE(std::memcmp(&erased[at], &from[at], dtype_bytes(shape.dtype)) == 0);
    }
  }
  return 0;
}
