// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvcodec::restore {

// restore_cuda.cu as compiled for all GPUs that are supported (a fatbin); nullptr where the build
// had no CUDA compiler.
const void* kernel_image();

}  // namespace kvcodec::restore
