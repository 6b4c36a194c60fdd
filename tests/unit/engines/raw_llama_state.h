// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "kvcodec/kv.h"

namespace kvcodec {

// A sequence state written field by field from llama.cpp's state_write, without the code under
// test, each field open to change. Elements are 16 bits: see value().
struct RawLlamaState {
  KvShape shape;
  uint32_t magic = 0xaf143cd8;
  int32_t seq_id = 0;
  uint32_t n_stream = 1;
  std::vector<int32_t> positions;  // of each cell
  uint32_t v_trans = 0;
  int32_t ggml_type = 1;  // f16
  size_t cell_ext_bytes = 0;
  bool zero_rows = false;

  RawLlamaState(const KvShape& of, uint32_t tokens) : shape(of), positions(tokens) {
    std::iota(positions.begin(), positions.end(), 0);
  }

  // Different for every element of the small shapes used here; depends on the position, not on
  // the cell.
  static uint16_t value(KvKind kind, uint32_t layer, uint32_t position, uint32_t channel) {
    return static_cast<uint16_t>((kind == KvKind::key ? 0 : 0x8000) + layer * 0x1000 +
                                 position * 0x80 + channel + 1);
  }

  std::vector<std::byte> bytes() const {
    std::vector<std::byte> out;
    put(out, magic);
    put(out, seq_id);
    put(out, n_stream);
    put(out, static_cast<uint32_t>(positions.size()));
    for (int32_t position : positions) {
      put(out, position);
      put(out, uint32_t{1});
      out.resize(out.size() + cell_ext_bytes, std::byte{7});
      put(out, seq_id);
    }
    put(out, v_trans);
    put(out, shape.layers);
    for (KvKind kind : kKvKinds) {
      if (shape.head_dim(kind) == 0) continue;
      for (uint32_t layer = 0; layer < shape.layers; ++layer) {
        put(out, ggml_type);
        put(out, uint64_t{shape.channels(kind)} * 2);
        for (int32_t position : positions) {
          for (uint32_t channel = 0; channel < shape.channels(kind); ++channel)
            put(out, zero_rows ? uint16_t{0}
                               : value(kind, layer, static_cast<uint32_t>(position), channel));
        }
      }
    }
    return out;
  }

 private:
  template <typename T>
  static void put(std::vector<std::byte>& out, T field) {
    const size_t at = out.size();
    out.resize(at + sizeof field);
    std::memcpy(out.data() + at, &field, sizeof field);
  }
};

inline constexpr KvShape kSmallShape = {
    .layers = 3, .kv_heads = 2, .key_dim = 4, .value_dim = 4, .dtype = DType::f16};

}  // namespace kvcodec
