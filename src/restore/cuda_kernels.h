// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/cuda.h"
#include "restore/kernel_arguments.h"

namespace kvcodec::restore {

enum class Kernel : uint8_t {
  turn_table,
  picture_checksums,
  layer_values,
  component_values,
  escape_values,
  basis_product,
  finish_values,
  exact_elements,
};
inline constexpr size_t kKernels = 8;

// The kernels of restore_cuda.cu, loaded into a driver's context. Thread-safe; what it enqueues is
// ordered by the stream. The driver must outlive it, and its context be current in every call.
class CudaKernels {
 public:
  // unsupported where the build had no CUDA compiler, or has no code for the GPU.
  static Result<std::unique_ptr<CudaKernels>> load(const CudaDriver& driver);
  ~CudaKernels();
  CudaKernels(const CudaKernels&) = delete;
  CudaKernels& operator=(const CudaKernels&) = delete;

  Status run(const TurnArguments& arguments, CUstream stream) const;
  Status run(const ChecksumArguments& arguments, CUstream stream) const;
  Status run(const LayerValuesArguments& arguments, CUstream stream) const;
  Status run(const ComponentValuesArguments& arguments, CUstream stream) const;
  Status run(const EscapeArguments& arguments, CUstream stream) const;
  Status run(const ProductArguments& arguments, CUstream stream) const;
  Status run(const FinishArguments& arguments, CUstream stream) const;
  Status run(const ExactArguments& arguments, CUstream stream) const;

 private:
  explicit CudaKernels(const CudaDriver& driver) : driver_(driver) {}
  struct Grid {
    uint32_t x = 1, y = 1, z = 1;
  };
  Status launch(Kernel kernel, Grid grid, uint32_t threads, size_t shared_bytes, CUstream stream,
                const void* arguments) const;

  const CudaDriver& driver_;
  CUmodule module_ = nullptr;
  std::array<CUfunction, kKernels> functions_{};
  size_t max_shared_bytes_ = 0;
};

}  // namespace kvcodec::restore
