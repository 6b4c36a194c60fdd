// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "hevc/slice_fault.h"

namespace kvcodec::hevc {

// Where a variant gets its pictures: it takes the next one whenever it has a lane free.
class JobSource {
 public:
  virtual ~JobSource() = default;
  // Null where there is none now: the variant then ends with what it has.
  virtual SliceJob* take() = 0;
  // The job has its samples or its fault. It is not touched again.
  virtual void finish(SliceJob& job) = 0;
};

// One way to decode slice data of the syntax that our encoder writes. All variants give the same
// samples and the same faults.
struct DecoderOps {
  const char* name;
  int lanes;  // pictures that are decoded at once
  // Decodes what `source` gives. Thread-safe.
  void (*decode)(JobSource& source);
};

std::span<const DecoderOps> decoder_variants();  // [0] is the reference

extern const DecoderOps kReferenceDecoder;  // clear: follows the syntax tables line by line
extern const DecoderOps kScalarDecoder;     // fast, portable C++
const DecoderOps* bmi2_decoder();           // null where the processor has no BMI2
// One picture a lane of SIMD, for every vector size that this processor has; the widest last.
std::span<const DecoderOps> lane_decoders();

}  // namespace kvcodec::hevc
