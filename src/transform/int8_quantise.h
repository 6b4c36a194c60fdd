// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvcodec::transform {

// Tier int8: x is stored as code = round(x / step) - offset, step shared by a layer and kind,
// offset a row's mean in steps (docs/format.md, "Tier int8"). Codes in [-127, 127] are samples
// 1 to 255; others are escapes, their sample 128.
inline constexpr int32_t kMaxCode = 127;
inline constexpr uint8_t kZeroSample = 128;

// The step of a layer, from the deviations of its values from their rows' means: the smaller of
// peak / per_peak, which at 127 uses all codes and escapes nothing, and rms / per_rms, which a few
// outliers cannot make coarse. 0 leaves a rule out; not both.
struct StepRule {
  double per_peak = kMaxCode;
  double per_rms = 12;
};
// Chooses the step of a layer, and the offsets of its rows. rows: [offsets.size()][tokens] finite
// numbers; the first `skipped` tokens (sinks) have no say.
float fit_step(const float* rows, size_t tokens, size_t skipped, const StepRule& rule,
               std::span<int16_t> offsets);

// One way to do the element loops. All variants give the same bits. Thread-safe.
struct Int8Ops {
  const char* name;
  // codes[i] and samples[i] of n numbers; returns how many are escapes. Requires
  // |row[i] / step| < 2^22.
  size_t (*quantise)(const float* row, size_t n, float step, int32_t offset, int32_t* codes,
                     uint8_t* samples);
  void (*dequantise)(const uint8_t* samples, size_t n, float step, int32_t offset, float* row);
};
std::span<const Int8Ops> int8_variants();  // [0] is the reference
const Int8Ops& best_int8();

// The value of one code, as dequantise has it.
float value_of_code(int64_t code, float step, int32_t offset);

// Rows of like spread get like keys: the half-octave class of the root mean square of n codes.
uint8_t spread_key(const int32_t* codes, size_t n);

}  // namespace kvcodec::transform
