// SPDX-License-Identifier: Apache-2.0
#include "transform/float_convert.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace kvcodec::transform {
namespace {

// Every function below is free of branches so that compilers turn its loop into SIMD code, and of
// denormal operands so that a host's flush-to-zero mode changes nothing for f16.

constexpr uint32_t kSign = 0x80000000u;
constexpr uint32_t kInfinity = 0x7f800000u;

float f16_to_float(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16;
  const uint32_t magnitude = (h & 0x7fffu) << 13;
  const uint32_t normal = magnitude + ((127u - 15u) << 23);
  // Subnormal f16: place the bits below 2^-14 and take 2^-14 away again, exactly.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude + 0x38800000u) - 0x1p-14f);
  const uint32_t special = magnitude | kInfinity;
  uint32_t bits = magnitude < (0x0400u << 13) ? subnormal : normal;
  bits = magnitude >= (0x7c00u << 13) ? special : bits;
  return std::bit_cast<float>(bits | sign);
}

uint16_t float_to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & ~kSign;
  const uint32_t rebiased = magnitude - ((127u - 15u) << 23);
  const uint32_t normal = (rebiased + 0xfffu + ((rebiased >> 13) & 1)) >> 13;
  // Below 2^-14 the sum with 0.5 rounds to units of 2^-24, f16's smallest.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7bffu : half;  // 65520 and above round past 65504
  half |= (bits & kSign) >> 16;
  half = magnitude > kInfinity ? 0u : half;
  return static_cast<uint16_t>(half);
}

float bf16_to_float(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }

uint16_t float_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & ~kSign;
  uint32_t half = (magnitude + 0x7fffu + ((magnitude >> 16) & 1)) >> 16;
  half = half >= 0x7f80u ? 0x7f7fu : half;
  half |= (bits & kSign) >> 16;
  half = magnitude > kInfinity ? 0u : half;
  return static_cast<uint16_t>(half);
}

float finite_float(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & ~kSign;
  uint32_t result = magnitude == kInfinity ? bits - 1 : bits;  // the next number towards zero
  result = magnitude > kInfinity ? 0u : result;
  return std::bit_cast<float>(result);
}

template <typename Bits, float (*convert)(Bits)>
void convert_to_floats(const std::byte* elements, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    Bits bits;
    std::memcpy(&bits, elements + i * sizeof bits, sizeof bits);
    out[i] = convert(bits);
  }
}

template <typename Bits, Bits (*convert)(float)>
void convert_from_floats(const float* in, size_t n, std::byte* elements) {
  for (size_t i = 0; i < n; ++i) {
    const Bits bits = convert(in[i]);
    std::memcpy(elements + i * sizeof bits, &bits, sizeof bits);
  }
}

}  // namespace

void to_floats(DType dtype, const std::byte* elements, size_t n, float* out) {
  switch (dtype) {
    case DType::f16: return convert_to_floats<uint16_t, f16_to_float>(elements, n, out);
    case DType::bf16: return convert_to_floats<uint16_t, bf16_to_float>(elements, n, out);
    case DType::f32: std::memcpy(out, elements, n * sizeof(float)); return;
  }
}

void from_floats(DType dtype, const float* in, size_t n, std::byte* elements) {
  switch (dtype) {
    case DType::f16: return convert_from_floats<uint16_t, float_to_f16>(in, n, elements);
    case DType::bf16: return convert_from_floats<uint16_t, float_to_bf16>(in, n, elements);
    case DType::f32: return convert_from_floats<float, finite_float>(in, n, elements);
  }
}

}  // namespace kvcodec::transform
