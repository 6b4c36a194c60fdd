// SPDX-License-Identifier: Apache-2.0
#include "hevc/block_encoder.h"
#include "hevc/encoder_variants.h"

namespace kvcodec::hevc {

const EncoderOps kScalarEncoder = {
    "scalar", 1, 1, [](JobQueue& queue, size_t, LaneScratch&) { encode_with_blocks(queue); }};

}  // namespace kvcodec::hevc
