// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "codec/chunk_encoder.h"
#include "codec/chunk_plan.h"
#include "kvcodec/result.h"

namespace kvcodec {

// Tier int8, one group of rows. `rows` is the group's matrix of elements (layout/row_gather.h).
// Concurrent calls for different groups of one chunk are safe.

// Fills the group's part of the header (row_keys, steps, row_offsets, sinks), the samples of its
// pictures, padded to the coded size, and its escapes, sorted. invalid_argument names the first
// number that is not finite, in the source or un-rotated.
Status quantise_group(const GroupPlan& plan, const std::byte* rows,
                      const transform::RotationTable& turns, const EncoderTuning& tuning,
                      format::Header& header, std::span<PictureContent> contents,
                      std::vector<format::Escape>& escapes);

// The inverse, sinks included.
void dequantise_group(const GroupPlan& plan, const format::Header& header,
                      const transform::RotationTable& turns,
                      std::span<const PictureContent> contents, std::byte* rows);

// Fills noise and relative_error of a group, from its exact and its restored elements. A row's
// centre is what its offset says.
void measure_rows(const GroupPlan& plan, const std::byte* exact, const std::byte* restored,
                  const transform::RotationTable& turns, const format::Header& header,
                  format::BasisGroup& group);

// The same from the sums of the squares of errors and of centred values: of each row's tokens in
// eight interleaved sums (by token % 8), then row after row.
void record_errors(const format::Header& header, double noise, double energy,
                   format::BasisGroup& group);

// How far a restored element of `layer` may be from `value`: half a step in each of the two
// numbers that a rotation mixes, and roundings. `peak` is the layer's largest magnitude.
double restore_tolerance(const format::Header& header, KvKind kind, uint32_t layer, double value,
                         double peak);

}  // namespace kvcodec
