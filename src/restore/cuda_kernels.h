// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "base/cuda_module.h"
#include "restore/kernel_arguments.h"

namespace kvcodec::restore {

enum class Kernel : uint8_t {
  turn_table,
  picture_checksums,
  layer_values,
  component_values,
  escape_values,
  basis_product,
  codes_product,
  finish_values,
  exact_elements,
};
inline constexpr size_t kKernels = 9;

// The kernels of restore_cuda.cu, loaded into a driver's context. Thread-safe; what it enqueues is
// ordered by the stream. The driver must outlive it, and its context be current in every call.
class CudaKernels {
 public:
  // unsupported where the build had no CUDA compiler, or has no code for the GPU.
  static Result<std::unique_ptr<CudaKernels>> load(const CudaDriver& driver);

  Status run(const TurnArguments& arguments, CUstream stream) const;
  Status run(const ChecksumArguments& arguments, CUstream stream) const;
  Status run(const LayerValuesArguments& arguments, CUstream stream) const;
  Status run(const ComponentValuesArguments& arguments, CUstream stream) const;
  Status run(const EscapeArguments& arguments, CUstream stream) const;
  Status run(const ProductArguments& arguments, CUstream stream) const;
  Status run(const CodesProductArguments& arguments, CUstream stream) const;
  Status run(const FinishArguments& arguments, CUstream stream) const;
  Status run(const ExactArguments& arguments, CUstream stream) const;

 private:
  explicit CudaKernels(std::unique_ptr<CudaModule> module) : module_(std::move(module)) {}
  Status launch(Kernel kernel, CudaGrid grid, uint32_t threads, size_t shared_bytes,
                CUstream stream, const void* arguments) const {
    return module_->launch(static_cast<size_t>(kernel), grid, threads, shared_bytes, stream,
                           arguments);
  }

  const std::unique_ptr<CudaModule> module_;
};

}  // namespace kvcodec::restore
