// SPDX-License-Identifier: Apache-2.0
#include "hevc/decoder_variants.h"
#include "hevc/encoder_variants.h"

// A build without Highway has no variants with a picture a lane.
namespace kvcodec::hevc {

std::span<const EncoderOps> lane_encoders() { return {}; }

std::span<const DecoderOps> lane_decoders() { return {}; }

}  // namespace kvcodec::hevc
