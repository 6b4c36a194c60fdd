// SPDX-License-Identifier: Apache-2.0
#include "base/cuda_images.h"

namespace kvcodec {

CudaImages cuda_images() { return {}; }

}  // namespace kvcodec
