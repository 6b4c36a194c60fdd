// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hevc/encoder.h"

namespace kvcodec::hevc {

extern const EncoderOps kReferenceEncoder;    // clear: follows the syntax tables line by line
extern const EncoderOps kScalarEncoder;       // fast, portable C++
const EncoderOps* bmi2_encoder();             // null where the processor has no BMI2
std::span<const EncoderOps> lane_encoders();  // a picture a lane; the fastest last

}  // namespace kvcodec::hevc
