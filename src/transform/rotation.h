// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kvcodec/kv.h"

namespace kvcodec::transform {

struct Turn {
  float cosine = 1, sine = 0;
};
// Cosine and sine of `phase` / 2^64 of a full turn: docs/format.md, "Rotation", bit for bit.
Turn turn_of_phase(uint64_t phase);

// The turns of all pairs and tokens of a chunk. Immutable; empty for Rope::Style::none.
class RotationTable {
 public:
  // Requires rope.phase_steps.size() == rope.rotary_dims / 2.
  RotationTable(const Rope& rope, uint32_t first_token, uint32_t tokens);

  uint32_t pairs() const { return pairs_; }
  // `tokens` numbers each. Requires pair < pairs().
  const float* cosines(uint32_t pair) const { return &cosines_[size_t{pair} * tokens_]; }
  const float* sines(uint32_t pair) const { return &sines_[size_t{pair} * tokens_]; }
  // The elements of a head that pair `pair` turns.
  uint32_t first_dim(uint32_t pair) const { return interleaved_ ? 2 * pair : pair; }
  uint32_t second_dim(uint32_t pair) const { return interleaved_ ? 2 * pair + 1 : pair + pairs_; }

 private:
  bool interleaved_;
  uint32_t pairs_, tokens_;
  std::vector<float> cosines_, sines_;
};

// Turns n pairs (x[i], y[i]) in place; `unrotate_pairs` is the inverse turn. Every product and sum
// is rounded to binary32.
void rotate_pairs(float* x, float* y, const float* cosines, const float* sines, size_t n);
void unrotate_pairs(float* x, float* y, const float* cosines, const float* sines, size_t n);

}  // namespace kvcodec::transform
