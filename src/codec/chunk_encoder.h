// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
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

struct ChunkToEncode {
  TokenRange range;
  ChunkId id;
};
struct EncodedChunks {
  std::vector<std::vector<std::byte>> objects;  // of all chunks before the first that is at fault
  Status status = ok_status();                  // of that one
};
// encode_chunk() of several: their pictures reach the encoder together, and the decoder where
// options.verify; the more the faster (hevc/encoder.h). Memory for all of them at once.
EncodedChunks encode_chunks(const KvSource& source, std::span<const ChunkToEncode> chunks,
                            const EncodeOptions& options, const EncoderTuning& tuning = {});

// encode_chunk() with a tuning.
Result<std::vector<std::byte>> encode_chunk_tuned(const KvSource& source, TokenRange range,
                                                  const ChunkId& id, const EncodeOptions& options,
                                                  const EncoderTuning& tuning);

}  // namespace kvcodec
