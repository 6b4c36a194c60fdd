// SPDX-License-Identifier: Apache-2.0
#include "hevc/decoder_variants.h"

namespace kvcodec::hevc {

const DecoderOps* bmi2_decoder() { return nullptr; }

}  // namespace kvcodec::hevc
