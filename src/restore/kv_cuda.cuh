// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "restore/kernel_arguments.h"

// Elements of a KV cache on the device: where they are, and as numbers.
namespace kvcodec::restore {

// Byte address of element (layer, token of the chunk, head, dim) in the engine's memory.
__device__ inline uint8_t* place(const TargetArguments& target, uint32_t layer, uint32_t token,
                                 uint32_t head, uint32_t dim) {
  const uint32_t at = target.first_token + token;
  uint64_t block = 0, inside = at;
  if (target.block_tokens != 0) {
    block = at / target.block_tokens;
    inside = at % target.block_tokens;
    if (target.block_table != nullptr) block = target.block_table[block];
  }
  return target.memory + target.offset + layer * target.layer + block * target.block_stride +
         inside * target.token + head * target.head + dim * target.dim;
}

__device__ inline void store(uint8_t* to, uint32_t bytes, uint32_t bits) {
  if (bytes == 2 && reinterpret_cast<uint64_t>(to) % 2 == 0) {
    *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(bits);
  } else if (bytes == 4 && reinterpret_cast<uint64_t>(to) % 4 == 0) {
    *reinterpret_cast<uint32_t*>(to) = bits;
  } else {
    for (uint32_t i = 0; i < bytes; ++i) to[i] = static_cast<uint8_t>(bits >> 8 * i);
  }
}

// transform::from_floats: to nearest even, overflow to the largest finite number, NaN to +0.
__device__ inline uint32_t to_bits(float value, uint32_t dtype) {
  if (isnan(value)) return 0;
  if (dtype == 1) {
    const uint32_t bits = __half_as_ushort(__float2half_rn(value));
    return (bits & 0x7fff) == 0x7c00 ? bits - 1 : bits;
  }
  if (dtype == 2) {
    const uint32_t bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
    return (bits & 0x7fff) == 0x7f80 ? bits - 1 : bits;
  }
  const uint32_t bits = __float_as_uint(value);
  return (bits & 0x7fffffff) == 0x7f800000 ? bits - 1 : bits;
}

__device__ inline uint32_t load(const uint8_t* from, uint32_t bytes) {
  if (bytes == 2 && reinterpret_cast<uint64_t>(from) % 2 == 0)
    return *reinterpret_cast<const uint16_t*>(from);
  if (bytes == 4 && reinterpret_cast<uint64_t>(from) % 4 == 0)
    return *reinterpret_cast<const uint32_t*>(from);
  uint32_t bits = 0;
  for (uint32_t i = 0; i < bytes; ++i) bits |= static_cast<uint32_t>(from[i]) << 8 * i;
  return bits;
}

// transform::to_floats.
__device__ inline float to_float(uint32_t bits, uint32_t dtype) {
  if (dtype == 1) return __half2float(__ushort_as_half(static_cast<uint16_t>(bits)));
  return __uint_as_float(dtype == 2 ? bits << 16 : bits);
}

}  // namespace kvcodec::restore
