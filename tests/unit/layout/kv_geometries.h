// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kvcodec/kv.h"

// The ways in which engines keep a KV cache, for tests of everything that moves elements.
namespace kvcodec::testing_kv {

struct NamedGeometry {
  std::string name;
  KvGeometry geometry;
  size_t bytes = 0;  // of memory that it needs
};

inline constexpr uint32_t kBlockTokens = 16;

// A paged cache: `blocks` blocks in memory, those of the sequence shuffled among them.
inline KvGeometry paged(const KvShape& shape, uint32_t tokens, uint32_t blocks) {
  KvGeometry geometry;
  geometry.shape = shape;
  geometry.tokens = tokens;
  geometry.block_tokens = kBlockTokens;
  std::vector<uint32_t> all(blocks);
  std::iota(all.begin(), all.end(), 0u);
  std::shuffle(all.begin(), all.end(), std::mt19937(9));
  geometry.block_table.assign(all.begin(),
                              all.begin() + (tokens + kBlockTokens - 1) / kBlockTokens);
  return geometry;
}

// vLLM's per-layer tensors (engines.md 1.6), layers one after the other. Dimension names: B blocks,
// N tokens of a block, H heads, D dims.
inline std::vector<NamedGeometry> vllm_geometries(const KvShape& shape, uint32_t tokens) {
  const size_t e = dtype_bytes(shape.dtype), n = kBlockTokens, h = shape.kv_heads;
  const size_t d = shape.key_dim;
  const uint32_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens + 3;
  const size_t block = 2 * n * h * d * e, layer = blocks * block;
  const KvGeometry base = paged(shape, tokens, blocks);
  std::vector<NamedGeometry> all;
  const auto add = [&](const char* name, size_t block_stride, KvGeometry::Strides key,
                       KvGeometry::Strides value) {
    NamedGeometry named{name, base, layer * shape.layers};
    named.geometry.block_stride = block_stride;
    named.geometry.key = key;
    named.geometry.value = value;
    all.push_back(std::move(named));
  };
  const size_t nhd = n * h * d * e;
  add("vllm_2BNHD", nhd, {0, layer, h * d * e, d * e, e}, {layer / 2, layer, h * d * e, d * e, e});
  add("vllm_B2NHD", block, {0, layer, h * d * e, d * e, e}, {nhd, layer, h * d * e, d * e, e});
  add("vllm_BNHC", block, {0, layer, 2 * h * d * e, 2 * d * e, e},
      {d * e, layer, 2 * h * d * e, 2 * d * e, e});
  add("vllm_BHNC", block, {0, layer, 2 * d * e, 2 * n * d * e, e},
      {d * e, layer, 2 * d * e, 2 * n * d * e, e});
  // The CPU backend ("vec"): the same block seen as [H][2 * N * D], keys column-major.
  add("vllm_cpu_vec", block, {0, layer, e, 2 * n * d * e, n * e},
      {n * d * e, layer, d * e, 2 * n * d * e, e});
  // Blocks outermost: all layers of a block together (BLHNC).
  add("vllm_BLHNC", block * shape.layers, {0, block, 2 * d * e, 2 * n * d * e, e},
      {d * e, block, 2 * d * e, 2 * n * d * e, e});
  return all;
}

// Requires tokens >= 17, so that there is more than one block.
inline std::vector<NamedGeometry> many_geometries(uint32_t tokens) {
  std::vector<NamedGeometry> all = vllm_geometries({3, 2, 20, 20, DType::bf16}, tokens);
  const auto add = [&](const char* name, KvGeometry geometry, size_t bytes) {
    all.push_back({name, std::move(geometry), bytes});
  };
  for (DType dtype : {DType::f16, DType::f32}) {
    const KvShape shape{3, 2, 40, 33, dtype};  // more than a tile each way
    const auto geometry = KvGeometry::contiguous(shape, tokens);
    add(dtype == DType::f16 ? "contiguous_f16" : "contiguous_f32", geometry,
        geometry.contiguous_bytes());
  }
  const KvShape no_values{3, 1, 36, 0, DType::bf16};
  const auto latent = KvGeometry::contiguous(no_values, tokens);
  add("no_values", latent, latent.contiguous_bytes());

  // llama.cpp without flash attention: values transposed, all keys first.
  const KvShape shape{3, 2, 8, 8, DType::f16};
  KvGeometry transposed;
  transposed.shape = shape;
  transposed.tokens = tokens;
  transposed.key = {0, size_t{32} * tokens, 32, 16, 2};
  transposed.value = {size_t{96} * tokens, size_t{32} * tokens, 2, size_t{16} * tokens,
                      size_t{2} * tokens};
  add("values_transposed", transposed, size_t{192} * tokens);

  // Odd strides everywhere, gaps between elements, heads outermost.
  KvGeometry odd;
  odd.shape = {3, 2, 5, 7, DType::f32};
  odd.tokens = tokens;
  odd.key = {3, 131, 131 * 3, size_t{131} * 3 * tokens, 5};
  odd.value = {29, 131, 131 * 3, size_t{131} * 3 * tokens, 7};
  add("odd_strides", odd, size_t{131} * 3 * tokens * 2);
  // Blocks without a table are in order.
  KvGeometry in_order = all[1].geometry;
  in_order.block_table.clear();
  add("blocks_in_order", in_order, all[1].bytes);
  return all;
}

}  // namespace kvcodec::testing_kv
