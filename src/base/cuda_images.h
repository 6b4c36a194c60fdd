// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvcodec {

// The kernels of each *_cuda.cu, compiled for all GPUs that are supported (fatbins). Null where the
// build had no CUDA compiler.
struct CudaImages {
  const void* restore = nullptr;
  const void* encoder = nullptr;
  const void* publish = nullptr;
};
CudaImages cuda_images();

}  // namespace kvcodec
