// SPDX-License-Identifier: Apache-2.0
#include "base/cuda_images.h"

// Assembler symbols, of cmake/cuda_image.S.in.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" const unsigned char kvcodec_restore_fatbin[];
extern "C" const unsigned char kvcodec_encoder_fatbin[];
extern "C" const unsigned char kvcodec_publish_fatbin[];
// NOLINTEND(readability-identifier-naming)

namespace kvcodec {

CudaImages cuda_images() {
  return {kvcodec_restore_fatbin, kvcodec_encoder_fatbin, kvcodec_publish_fatbin};
}

}  // namespace kvcodec
