// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "hevc/cuda_encoder.h"

namespace kvcodec::hevc {

Result<std::unique_ptr<CudaEncoder>> CudaEncoder::create(const CudaEncoderOptions&) {
  return make_error(ErrorCode::unsupported,
                    "this build knows no GPU (ffnvcodec's headers were missing when it was made)");
}

}  // namespace kvcodec::hevc
