// SPDX-License-Identifier: Apache-2.0
#include "hevc/encoder.h"

#include <vector>

#include "hevc/encoder_variants.h"

namespace kvcodec::hevc {

std::span<const EncoderOps> encoder_variants() {
  static const std::vector<EncoderOps> variants = [] {
    std::vector<EncoderOps> all = {kReferenceEncoder, kScalarEncoder};
    if (const EncoderOps* bmi2 = bmi2_encoder()) all.push_back(*bmi2);
    return all;
  }();
  return variants;
}

const EncoderOps& best_encoder() { return encoder_variants().back(); }

}  // namespace kvcodec::hevc
