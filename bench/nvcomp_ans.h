// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "base/cuda.h"

namespace kvcodec::bench {

// NVIDIA's nvCOMP (6.0, PyPI: nvidia-libnvcomp-cu13), loaded at run time: byte-wise ANS, pieces of
// 64 KiB, each decoded by the GPU's general cores. What NVDEC is compared with.
class NvcompAns {
 public:
  // unsupported where the library is not there.
  static Result<std::unique_ptr<NvcompAns>> open(const CudaDriver& driver);
  virtual ~NvcompAns() = default;
  // Compresses bytes of host memory into device memory, for decode().
  virtual Status compress(std::span<const uint8_t> bytes) = 0;
  virtual size_t compressed_bytes() const = 0;
  // Enqueues decoding of all that was compressed.
  virtual Status decode() = 0;
  virtual CUstream stream() const = 0;
  // Whether what was decoded last is what was compressed; waits.
  virtual Result<bool> is_right() = 0;
};

}  // namespace kvcodec::bench
