// SPDX-License-Identifier: Apache-2.0
#include "hevc/block_decoder.h"
#include "hevc/decoder_variants.h"

namespace kvcodec::hevc {

const DecoderOps kScalarDecoder = {"scalar", 1, decode_with_blocks};

}  // namespace kvcodec::hevc
