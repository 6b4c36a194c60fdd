// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "kvcodec/codec.h"
#include "transform/int8_quantise.h"

namespace kvcodec {

// Choices of the encoder that the format leaves open, for benchmarks and tests. The defaults are
// measured (docs/benchmarks.md, "Split of tier exact").
struct EncoderTuning {
  uint8_t symbol_mantissa_bits[2] = {0, 0};  // by kind; f16 of tier exact
  transform::StepRule step_rule;             // tier int8
  bool sort_codes = true;                    // tier int8: rows of like spread together
};

// encode_chunk() with a tuning.
Result<std::vector<std::byte>> encode_chunk_tuned(const KvSource& source, TokenRange range,
                                                  const ChunkId& id, const EncodeOptions& options,
                                                  const EncoderTuning& tuning);

}  // namespace kvcodec
