// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "hevc/encoder.h"

namespace kvcodec::hevc {

struct CudaEncoderOptions {
  int device = 0;  // CUDA ordinal
  // Device memory for samples and slices in coding. One picture is coded whatever its size.
  uint64_t max_device_bytes = uint64_t{1} << 30;
  int host_threads = 0;  // that finish slices; 0: 4, or all cores where there are fewer
};

// A picture whose samples are in device memory, `stride` bytes a row; as EncodeJob else. The
// samples must be there (no stream is waited for) and stay until the call returns.
struct CudaEncodeJob {
  uint64_t samples = 0;  // CUdeviceptr
  uint32_t width = 0, height = 0;
  size_t stride = 0;
  bool persistent_rice = false;
  std::vector<uint8_t>* slice_data = nullptr;
};

// Encodes pictures on an NVIDIA GPU, one warp each: byte for byte what the reference encoder
// writes. Worth it from dozens of pictures on: one alone takes as long as hundreds. Thread-safe:
// concurrent calls share the GPU.
class CudaEncoder {
 public:
  // unsupported where the build or the machine lacks something; the message says what.
  static Result<std::unique_ptr<CudaEncoder>> create(const CudaEncoderOptions& options = {});
  virtual ~CudaEncoder() = default;
  virtual const std::string& gpu() const = 0;
  // Sizes satisfy check_parameters(). On an error the slice data are unspecified.
  virtual Status encode(std::span<EncodeJob> jobs) = 0;  // samples in host memory
  virtual Status encode(std::span<CudaEncodeJob> jobs) = 0;
};

}  // namespace kvcodec::hevc
