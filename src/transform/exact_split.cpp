// SPDX-License-Identifier: Apache-2.0
#include "transform/exact_split.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "transform/symbol_order.h"

namespace kvcodec::transform {
namespace {

constexpr uint32_t kMaxF16MantissaBits = 3;

// The reference: one element, one bit at a time, in the words of docs/format.md.
uint64_t load_element(const ExactSplit& how, const std::byte* elements, size_t i) {
  uint64_t value = 0;
  std::memcpy(&value, elements + i * (how.bits / 8), how.bits / 8);
  return value;
}

void split_reference(const ExactSplit& how, const std::byte* elements, size_t tokens,
                     uint8_t centre, uint8_t* samples, std::byte* low) {
  const uint32_t planes = how.low_bits / 8, rest = how.low_bits % 8;
  std::byte* packed = low + planes * tokens;
  std::fill(packed, low + how.low_row_bytes(tokens), std::byte{0});
  for (size_t i = 0; i < tokens; ++i) {
    const uint64_t x = load_element(how, elements, i);
    const uint64_t mask = (uint64_t{1} << how.bits) - 1;
    const uint64_t rotated = ((x << 1) | (x >> (how.bits - 1))) & mask;
    const auto offset = static_cast<uint8_t>((rotated >> how.low_bits) - centre);
    samples[i] = kSymbolOrder.sample_of[offset];
    for (uint32_t plane = 0; plane < planes; ++plane)
      low[plane * tokens + i] = static_cast<std::byte>(rotated >> (8 * plane));
    for (uint32_t bit = 0; bit < rest; ++bit) {
      const size_t at = i * rest + bit;
      packed[at / 8] |= static_cast<std::byte>((rotated >> (8 * planes + bit) & 1) << (at % 8));
    }
  }
}

void merge_reference(const ExactSplit& how, const uint8_t* samples, const std::byte* low,
                     size_t tokens, uint8_t centre, std::byte* elements) {
  const uint32_t planes = how.low_bits / 8, rest = how.low_bits % 8;
  const std::byte* packed = low + planes * tokens;
  const uint64_t symbol_mask = (uint64_t{1} << how.symbol_bits) - 1;
  for (size_t i = 0; i < tokens; ++i) {
    const uint8_t offset = kSymbolOrder.offset_of[samples[i]];
    const uint64_t symbol = static_cast<uint64_t>(offset + centre) & symbol_mask;
    uint64_t rotated = symbol << how.low_bits;
    for (uint32_t plane = 0; plane < planes; ++plane)
      rotated |= std::to_integer<uint64_t>(low[plane * tokens + i]) << (8 * plane);
    for (uint32_t bit = 0; bit < rest; ++bit) {
      const size_t at = i * rest + bit;
      rotated |= (std::to_integer<uint64_t>(packed[at / 8]) >> (at % 8) & 1) << (8 * planes + bit);
    }
    const uint64_t x = (rotated >> 1) | ((rotated & 1) << (how.bits - 1));
    std::memcpy(elements + i * (how.bits / 8), &x, how.bits / 8);
  }
}

// The fast variant: whole planes in loops without branches (SIMD code at -O3), and packed bits
// eight elements, that is `rest` bytes, at a time.
template <typename Bits>
Bits rotated_at(const std::byte* elements, size_t i) {
  Bits x;
  std::memcpy(&x, elements + i * sizeof x, sizeof x);
  return static_cast<Bits>((x << 1) | (x >> (8 * sizeof x - 1)));
}

template <typename Bits, uint32_t low_bits>
void split_planes(const std::byte* elements, size_t tokens, uint8_t centre, uint8_t* samples,
                  std::byte* low) {
  constexpr uint32_t planes = low_bits / 8, rest = low_bits % 8;
  for (size_t i = 0; i < tokens; ++i)
    samples[i] =
        kSymbolOrder
            .sample_of[static_cast<uint8_t>((rotated_at<Bits>(elements, i) >> low_bits) - centre)];
  for (uint32_t plane = 0; plane < planes; ++plane) {
    std::byte* out = low + plane * tokens;
    for (size_t i = 0; i < tokens; ++i)
      out[i] = static_cast<std::byte>(rotated_at<Bits>(elements, i) >> (8 * plane));
  }
  if constexpr (rest > 0) {
    constexpr uint32_t mask = (1u << rest) - 1;
    std::byte* out = low + planes * tokens;
    const auto pack = [&](size_t first, size_t n) {
      uint32_t word = 0;
      for (size_t j = 0; j < n; ++j)
        word |= (rotated_at<Bits>(elements, first + j) >> (8 * planes) & mask) << (rest * j);
      return word;
    };
    size_t i = 0;
    for (; i + 8 <= tokens; i += 8, out += rest) {
      const uint32_t word = pack(i, 8);
      std::memcpy(out, &word, rest);
    }
    const uint32_t word = pack(i, tokens - i);
    std::memcpy(out, &word, (rest * (tokens - i) + 7) / 8);
  }
}

template <typename Bits, uint32_t low_bits>
void merge_planes(const uint8_t* samples, const std::byte* low, size_t tokens, uint8_t centre,
                  std::byte* elements) {
  constexpr uint32_t planes = low_bits / 8, rest = low_bits % 8;
  constexpr uint32_t bits = 8 * sizeof(Bits);
  constexpr size_t kStrip = 64;  // elements whose packed bits are spread out at a time
  for (size_t first = 0; first < tokens; first += kStrip) {
    const size_t n = std::min(kStrip, tokens - first);
    std::array<uint8_t, kStrip> spread{};
    if constexpr (rest > 0) {
      constexpr uint32_t mask = (1u << rest) - 1;
      const std::byte* in = low + planes * tokens + first / 8 * rest;
      for (size_t i = 0; i < n; i += 8) {
        uint32_t word = 0;
        std::memcpy(&word, in, (rest * std::min<size_t>(8, n - i) + 7) / 8);
        for (size_t j = 0; j < 8; ++j)
          spread[i + j] = static_cast<uint8_t>(word >> (rest * j) & mask);
        in += rest;
      }
    }
    for (size_t i = 0; i < n; ++i) {
      // Shifting the symbol to the top drops its carry beyond symbol_bits, as the format wants.
      const auto symbol =
          static_cast<uint32_t>(kSymbolOrder.offset_of[samples[first + i]] + centre);
      uint32_t rotated = symbol << low_bits;
      for (uint32_t plane = 0; plane < planes; ++plane)
        rotated |= std::to_integer<uint32_t>(low[plane * tokens + first + i]) << (8 * plane);
      rotated |= uint32_t{spread[i]} << (8 * planes);
      const auto whole = static_cast<Bits>(rotated);
      const auto x = static_cast<Bits>((whole >> 1) | (whole << (bits - 1)));
      std::memcpy(elements + (first + i) * sizeof x, &x, sizeof x);
    }
  }
}

void split_fast(const ExactSplit& how, const std::byte* elements, size_t tokens, uint8_t centre,
                uint8_t* samples, std::byte* low) {
  switch (how.low_bits) {
    case 8: return split_planes<uint16_t, 8>(elements, tokens, centre, samples, low);
    case 9: return split_planes<uint16_t, 9>(elements, tokens, centre, samples, low);
    case 10: return split_planes<uint16_t, 10>(elements, tokens, centre, samples, low);
    case 11: return split_planes<uint16_t, 11>(elements, tokens, centre, samples, low);
    default: return split_planes<uint32_t, 24>(elements, tokens, centre, samples, low);
  }
}

void merge_fast(const ExactSplit& how, const uint8_t* samples, const std::byte* low, size_t tokens,
                uint8_t centre, std::byte* elements) {
  switch (how.low_bits) {
    case 8: return merge_planes<uint16_t, 8>(samples, low, tokens, centre, elements);
    case 9: return merge_planes<uint16_t, 9>(samples, low, tokens, centre, elements);
    case 10: return merge_planes<uint16_t, 10>(samples, low, tokens, centre, elements);
    case 11: return merge_planes<uint16_t, 11>(samples, low, tokens, centre, elements);
    default: return merge_planes<uint32_t, 24>(samples, low, tokens, centre, elements);
  }
}

// At full resolution the symbol is the top byte of the rotated element, whatever the dtype.
template <typename Bits>
uint8_t median_top_byte(const std::byte* elements, size_t tokens) {
  // Neighbours are often equal: one table would make every count wait for the one before.
  std::array<std::array<uint32_t, 256>, 2> counts{};
  for (size_t i = 0; i < tokens; ++i)
    ++counts[i % 2][rotated_at<Bits>(elements, i) >> (8 * sizeof(Bits) - 8)];
  size_t below = 0, key = 0;
  for (;; ++key) {
    below += counts[0][key] + counts[1][key];
    if (below > tokens / 2) return static_cast<uint8_t>(key);
  }
}

constexpr SplitOps kVariants[] = {{"reference", split_reference, merge_reference},
                                  {"planes", split_fast, merge_fast}};

}  // namespace

ExactSplit ExactSplit::of(DType dtype, uint32_t mantissa_bits) {
  switch (dtype) {
    case DType::f16:
      return {16, 5 + mantissa_bits, 11 - mantissa_bits, kMaxF16MantissaBits - mantissa_bits};
    case DType::bf16: return {16, 8, 8, 0};
    case DType::f32: break;
  }
  return {32, 8, 24, 0};
}

std::span<const SplitOps> split_variants() { return kVariants; }
const SplitOps& best_split() { return kVariants[1]; }

uint8_t row_key(const ExactSplit& how, const std::byte* elements, size_t tokens) {
  return how.bits == 32 ? median_top_byte<uint32_t>(elements, tokens)
                        : median_top_byte<uint16_t>(elements, tokens);
}

}  // namespace kvcodec::transform
