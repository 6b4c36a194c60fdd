// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/cuda.h"

namespace kvcodec {

struct CudaGrid {
  uint32_t x = 1, y = 1, z = 1;
};

// Kernels of one image, loaded into a driver's context. Thread-safe; what it enqueues is ordered by
// the stream. The driver must outlive it, and its context be current in every call.
class CudaModule {
 public:
  // `image`: of cuda_images(); names: of its kernels, which outlive the module. unsupported where
  // there is no image, or it has no code for the GPU.
  static Result<std::unique_ptr<CudaModule>> load(const CudaDriver& driver, const void* image,
                                                  std::span<const char* const> names);
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  // Enqueues kernel number `kernel` with one argument; nothing where the grid is empty.
  Status launch(size_t kernel, CudaGrid grid, uint32_t threads, size_t shared_bytes,
                CUstream stream, const void* arguments) const;

 private:
  explicit CudaModule(const CudaDriver& driver) : driver_(driver) {}

  const CudaDriver& driver_;
  CUmodule module_ = nullptr;
  std::span<const char* const> names_;
  std::vector<CUfunction> functions_;
  size_t max_shared_bytes_ = 0;
};

}  // namespace kvcodec
