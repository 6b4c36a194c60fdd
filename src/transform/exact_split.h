// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvcodec/kv.h"

namespace kvcodec::transform {

// How tier exact cuts an element in two (docs/format.md, "Tier exact"). The bits are rotated left
// by one, which brings the sign to the bottom; the top bits are the symbol, the others stay raw.
struct ExactSplit {
  uint32_t bits = 16;        // of an element
  uint32_t symbol_bits = 8;  // exponent and leading mantissa bits
  uint32_t low_bits = 8;
  // Row keys are symbols with the most mantissa bits there are: a row's centre is its key shifted
  // right by this.
  uint32_t key_shift = 0;

  // Requires mantissa_bits <= 3 for f16, 0 otherwise.
  static ExactSplit of(DType dtype, uint32_t mantissa_bits);
  // Bytes of the low bits of one row.
  size_t low_row_bytes(size_t tokens) const {
    return low_bits / 8 * tokens + (low_bits % 8 * tokens + 7) / 8;
  }
};

// One way to split a row into samples and low bits, and back. All variants give the same bytes.
// `elements` needs no alignment. Thread-safe.
struct SplitOps {
  const char* name;
  void (*split)(const ExactSplit& how, const std::byte* elements, size_t tokens, uint8_t centre,
                uint8_t* samples, std::byte* low);
  void (*merge)(const ExactSplit& how, const uint8_t* samples, const std::byte* low, size_t tokens,
                uint8_t centre, std::byte* elements);
};
std::span<const SplitOps> split_variants();  // [0] is the reference
const SplitOps& best_split();

// The row key of a row: the median of its symbols at full resolution. Requires tokens > 0.
uint8_t row_key(const ExactSplit& how, const std::byte* elements, size_t tokens);

}  // namespace kvcodec::transform
