// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// What the kernels of restore_cuda.cu are given: one struct each, by value. Included by both
// compilers, so plain types only; pointers are to device memory.
namespace kvcodec::restore {

// Threads of a block, and tokens that a block of the element kernels restores.
inline constexpr uint32_t kBlockThreads = 256;
inline constexpr uint32_t kTileTokens = 32;
// Blocks of the basis product (transform/product_cuda.cuh).
inline constexpr uint32_t kProductRows = 128, kProductColumns = 64, kProductThreads = 128;

// Cosine and sine of every pair and token, [pairs][tokens] each.
struct TurnArguments {
  const uint64_t* phase_steps;
  uint64_t position;  // of token 0
  uint32_t pairs, tokens;
  float *cosines, *sines;
};

// XXH3 of rows * tokens samples each. Sets *bad where one is not as expected.
struct ChecksumArguments {
  const uint8_t* samples;    // of the chunk's pictures
  const uint64_t* offsets;   // [pictures] in samples
  const uint64_t* bytes;     // [pictures], more than 240 each
  const uint64_t* expected;  // [pictures]
  uint64_t* found;           // [pictures]
  const uint64_t* secret;    // XXH3's, 24 words
  uint32_t* bad;
  uint32_t pictures;
};

// Tier int8 and identity: samples of a group's rows to values, [rows][tokens].
struct LayerValuesArguments {
  const uint8_t* samples;      // of the group, layout row after layout row
  const uint32_t* layout_row;  // [rows] of a natural row
  const float* steps;          // [layers]
  const int16_t* offsets;      // [rows]
  float* values;
  uint32_t rows, channels, tokens;
};

// A profile's basis: samples of live rows to component values, [live_rows][tokens].
struct ComponentValuesArguments {
  const uint8_t* samples;
  float* values;
  float step, delta[2];
  uint32_t rows, tokens;
};

struct EscapeEntry {
  uint32_t row, token;  // of the group
  int32_t code;
};
// Values of codes that samples cannot hold. With steps as LayerValues has them, or, where `steps`
// is null, as ComponentValues has them.
struct EscapeArguments {
  const EscapeEntry* escapes;
  const float* steps;
  const int16_t* offsets;
  float* values;
  float step, delta[2];
  uint32_t count, channels, tokens;
};

// values[c][t] = mean[c], then + basis[k][c] * components[k][t] by fused multiply-add, k ascending.
struct ProductArguments {
  const float* basis;  // [components][rows]
  const float* mean;   // [rows]
  const float* components;
  float* values;
  uint32_t rows, depth, tokens;
};

// The same from samples of live rows, where no code is an escape.
struct CodesProductArguments {
  const float* basis;
  const float* mean;
  const uint8_t* samples;  // [depth][tokens]
  float* values;
  float step, delta[2];
  uint32_t rows, depth, tokens;
};

// Where elements go: KvGeometry of one kind.
struct TargetArguments {
  uint8_t* memory;
  uint64_t offset, layer, token, head, dim, block_stride;
  const uint32_t* block_table;  // null: block i is at i
  uint32_t block_tokens;        // 0: one block
  uint32_t first_token, element_bytes;
};

// Turns, converts and stores the values of a group; sinks as they are. Does nothing where *bad.
struct FinishArguments {
  const float* values;  // [layers][heads][dim][tokens]
  const float *cosines, *sines;
  const uint8_t* sinks;  // of layer 0 of the group: [token][head][dim] elements
  uint64_t sink_layer;   // bytes from one layer's sinks to the next
  const uint32_t* bad;
  TargetArguments target;
  uint32_t layers, first_layer, heads, dim, tokens, pairs, sink_tokens;
  uint32_t interleaved, dtype;  // DType
};

// Tier exact: joins symbols and low bits and stores the elements. Does nothing where *bad.
struct ExactArguments {
  const uint8_t* samples;      // of the group, layout row after layout row
  const uint8_t* low;          // likewise, low_row_bytes each
  const uint32_t* layout_row;  // [rows] of a natural row
  const uint8_t* centres;      // [rows]
  const uint8_t* offset_of;    // [256]: SymbolOrder
  const uint32_t* bad;
  TargetArguments target;
  uint32_t layers, first_layer, heads, dim, tokens;
  uint32_t bits, symbol_bits, low_bits, low_row_bytes;
};

}  // namespace kvcodec::restore
