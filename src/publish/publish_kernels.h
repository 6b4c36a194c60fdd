// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/cuda_module.h"
#include "publish/publish_arguments.h"

namespace kvcodec::publish {

// The kernels of publish_cuda.cu, loaded into a driver's context. Thread-safe; what it enqueues is
// ordered by the stream. The driver must outlive it, and its context be current in every call.
class PublishKernels {
 public:
  // unsupported where the build had no CUDA compiler, or has no code for the GPU.
  static Result<std::unique_ptr<PublishKernels>> load(const CudaDriver& driver);

  Status run(const ElementsArguments& arguments, CUstream stream) const;
  Status run(const SinksArguments& arguments, CUstream stream) const;
  Status run(const ValuesArguments& arguments, CUstream stream) const;
  Status run(const RowKeysArguments& arguments, CUstream stream) const;
  Status run(const SplitArguments& arguments, CUstream stream) const;
  Status run(const SortArguments& arguments, CUstream stream) const;
  Status run(const StatisticsArguments& arguments, CUstream stream) const;
  Status run(const StepsArguments& arguments, CUstream stream) const;
  Status run(const QuantiseArguments& arguments, CUstream stream) const;
  Status run(const PlaceArguments& arguments, CUstream stream) const;
  Status run(const CentreArguments& arguments, CUstream stream) const;
  Status run(const AnalysisArguments& arguments, CUstream stream) const;
  Status run(const ComponentsArguments& arguments, CUstream stream) const;
  Status run(const LowerArguments& arguments, CUstream stream) const;
  Status run(const ErrorsArguments& arguments, CUstream stream) const;
  Status run(const RowProductsArguments& arguments, CUstream stream) const;
  Status run(const PanelSumsArguments& arguments, CUstream stream) const;
  Status run(const RowErrorsArguments& arguments, CUstream stream) const;

 private:
  explicit PublishKernels(std::unique_ptr<CudaModule> module) : module_(std::move(module)) {}
  const std::unique_ptr<CudaModule> module_;
};

}  // namespace kvcodec::publish
