// SPDX-License-Identifier: Apache-2.0
#include "hevc/encoder_variants.h"

namespace kvcodec::hevc {

const EncoderOps* bmi2_encoder() { return nullptr; }

}  // namespace kvcodec::hevc
