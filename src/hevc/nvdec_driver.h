// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loader's messages: what is missing becomes part of an Error instead.
#define FFNV_LOG_FUNC(...)
#define FFNV_DEBUG_LOG_FUNC(...)
#include <ffnvcodec/dynlink_cuda.h>
#include <ffnvcodec/dynlink_cuviddec.h>
#include <ffnvcodec/dynlink_loader.h>

#include <memory>

#include "hevc/nvdec.h"

namespace kvcodec::hevc {

// The entry points that dynlink_loader.h lacks.
struct CudaExtras {
  CUresult(CUDAAPI* cuMemHostAlloc)(void** pointer, size_t bytes, unsigned flags);
  CUresult(CUDAAPI* cuMemFreeHost)(void* pointer);
  CUresult(CUDAAPI* cuStreamCreateWithPriority)(CUstream* stream, unsigned flags, int priority);
  CUresult(CUDAAPI* cuCtxGetStreamPriorityRange)(int* least, int* greatest);
};

// The driver's libraries, and one GPU's primary context (the one CUDA's runtime uses) for as long
// as this lives. Thread-safe.
class NvdecDriver {
 public:
  static Result<std::unique_ptr<NvdecDriver>> open(int device);
  ~NvdecDriver();
  NvdecDriver(const NvdecDriver&) = delete;
  NvdecDriver& operator=(const NvdecDriver&) = delete;

  const CudaFunctions& cuda() const { return *cuda_; }
  const CuvidFunctions& cuvid() const { return *cuvid_; }
  const CudaExtras& extras() const { return extras_; }
  const NvdecInfo& info() const { return info_; }
  CUcontext context() const { return context_; }
  // ok for CUDA_SUCCESS, else a device error that names the call.
  Status check(CUresult result, const char* call) const;

 private:
  NvdecDriver() = default;
  Status load();
  Status query(int device);

  CudaFunctions* cuda_ = nullptr;
  CuvidFunctions* cuvid_ = nullptr;
  CudaExtras extras_ = {};
  NvdecInfo info_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

// Makes a driver's context current in this thread for a scope.
class ContextScope {
 public:
  explicit ContextScope(const NvdecDriver& driver) : driver_(driver) {
    driver_.cuda().cuCtxPushCurrent(driver_.context());
  }
  ~ContextScope() {
    CUcontext old;
    driver_.cuda().cuCtxPopCurrent(&old);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const NvdecDriver& driver_;
};

}  // namespace kvcodec::hevc
