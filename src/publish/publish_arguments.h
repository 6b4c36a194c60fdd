// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "restore/kernel_arguments.h"

// What the kernels of publish_cuda.cu are given: one struct each, by value. Pointers are to device
// memory; "group" is a GroupPlan's rows, natural order; sinks are the first tokens of the chunk.
namespace kvcodec::publish {

using restore::EscapeEntry;
using restore::TargetArguments;  // here of the cache that is read

inline constexpr uint32_t kBlockThreads = 256;
inline constexpr uint32_t kTileTokens = 32;
inline constexpr uint32_t kPanel = 64;  // tokens of a panel: codec/calibrated_tier.h
// Threads that share a row of doubles: the eight partial sums of add_lanes().
inline constexpr uint32_t kRowLanes = 8;

// The part of a cache that is one group.
struct GroupSource {
  TargetArguments cache;
  uint32_t layers, first_layer, heads, dim, tokens, sinks, dtype;
};

// Elements as they are, [rows][tokens].
struct ElementsArguments {
  GroupSource source;
  uint8_t* elements;
};

// Elements of sink tokens to where Header::sinks keeps those of the group's first layer.
struct SinksArguments {
  GroupSource source;
  uint8_t* sinks;
  uint64_t layer_bytes;  // from one layer's sinks to the next
};

// Values with their rotation undone, [rows][tokens]; sinks as 0. Sets *bad where one is not finite.
struct ValuesArguments {
  GroupSource source;
  const float *cosines, *sines;  // [pairs][tokens]
  uint32_t pairs, interleaved;
  float* values;
  uint32_t* bad;
};

// Tier exact.
struct RowKeysArguments {
  const uint8_t* elements;  // [rows][tokens]
  uint8_t* keys;
  uint32_t rows, tokens, element_bytes;
};
struct SplitArguments {
  const uint8_t* elements;
  const uint8_t* keys;
  const uint32_t* places;    // of rows in the pictures
  const uint8_t* sample_of;  // [256]: SymbolOrder
  uint8_t* samples;          // pictures, `width` a row
  uint8_t* low;              // low_row_bytes a row
  uint32_t rows, tokens, width;
  uint32_t bits, low_bits, key_shift, low_row_bytes;
};

// places[row]: layout::sort_rows, inverted. One block.
struct SortArguments {
  const uint8_t* keys;
  uint32_t* places;
  uint32_t rows;
};

// Tier int8 and identity: transform::fit_step in two kernels.
struct RowStatistics {
  double mean, peak, squares;
};
struct StatisticsArguments {
  const float* values;  // [rows][tokens]
  RowStatistics* rows_out;
  uint32_t rows, tokens, sinks;
};
struct StepsArguments {
  const RowStatistics* rows;  // [layers][channels]
  float* steps;               // [layers]
  int16_t* offsets;           // [layers][channels]
  double per_peak, per_rms;
  uint32_t layers, channels, tokens, sinks;
};
struct QuantiseArguments {
  const float* values;
  const float* steps;
  const int16_t* offsets;
  uint8_t* samples;  // [rows][tokens]
  uint8_t* keys;     // [rows]; null: none
  EscapeEntry* escapes;
  uint32_t* escape_count;  // may pass escape_room: then some are missing
  uint32_t escape_room, rows, channels, tokens, sinks;
};
// Rows of samples to their places in pictures.
struct PlaceArguments {
  const uint8_t* samples;
  const uint32_t* places;
  uint8_t* pictures;
  uint32_t rows, tokens, width;
};

// transform::RateModel on the device: a block has so many rows.
inline constexpr uint32_t kRateRows = kBlockThreads / kRowLanes;
inline constexpr uint32_t kMagnitudes = 16;

// A profile's basis: centred and, with a diagonal metric, weighed. In place.
struct CentreArguments {
  float* values;
  const float* mean;
  const float* metric;  // [channels]; null: none, or not diagonal
  uint32_t channels, tokens, sinks;
};
// out = a * b, `batches` times: a is [rows][depth] each, b [depth][tokens], out [rows][tokens], one
// after another.
struct AnalysisArguments {
  const float* a;
  const float* b;
  float* out;
  uint32_t rows, depth, tokens, batches;
};
// Codes of components, and how often each magnitude is among those of kRateRows rows.
struct ComponentsArguments {
  const float* values;  // [components][tokens]
  uint8_t* samples;
  int32_t* peaks;        // [components]: largest magnitude
  uint32_t* magnitudes;  // [components / kRateRows, rounded up][kMagnitudes]; 0 is not counted
  EscapeEntry* escapes;
  uint32_t* escape_count;
  float step, dead_zone;
  uint32_t escape_room, components, tokens;
};
struct ComponentRow {
  double sums[2];  // CentroidSums, of this row
  uint32_t counts[2];
  int32_t peak;
  uint32_t zero;
};
// lower_codes(), and what the codes come to.
struct LowerArguments {
  const float* values;  // [components][tokens]
  uint8_t* samples;
  const float* bits;  // [components / kRateRows, rounded up][kMagnitudes]
  ComponentRow* rows_out;
  float step, dead_zone, bit_worth;
  uint32_t components, tokens;
};

// Restored values [rows][tokens] against the cache: what measure_panel() or measure_rows() has
// before its sums, both with rotation undone.
struct ErrorsArguments {
  GroupSource source;
  const float* restored;  // rotation not yet done
  const float *cosines, *sines;
  uint32_t pairs, interleaved;
  float* errors;  // [rows][tokens]; sinks 0
  float* values;  // the cache's
};
// Sums of a row: of a[t] * b[t] over each panel of tokens, [rows][panels].
struct RowProductsArguments {
  const float *a, *b;
  double* sums;
  uint32_t rows, tokens;
};
// sums of a panel over the rows, in order, each weighed (null: not): [panels].
struct PanelSumsArguments {
  const double* sums;   // [rows][panels]
  const float* metric;  // [rows]
  double* totals;
  uint32_t rows, panels;
};
// measure_rows(): sums of a row from the first token that is no sink on, [rows] pairs (noise,
// energy).
struct RowErrorsArguments {
  const float *errors, *values;
  const float* steps;
  const int16_t* offsets;
  double* sums;
  uint32_t rows, channels, tokens, sinks;
};

}  // namespace kvcodec::publish
