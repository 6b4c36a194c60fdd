// SPDX-License-Identifier: Apache-2.0
#include "hevc/block_encoder.h"
#include "hevc/encoder_variants.h"

namespace kvcodec::hevc {

const EncoderOps kScalarEncoder = {"scalar", encode_with_blocks};

}  // namespace kvcodec::hevc
