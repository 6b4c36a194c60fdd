// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loader's messages: what is missing becomes part of an Error instead.
#define FFNV_LOG_FUNC(...)
#define FFNV_DEBUG_LOG_FUNC(...)
#include <ffnvcodec/dynlink_cuda.h>
#include <ffnvcodec/dynlink_cuviddec.h>
#include <ffnvcodec/dynlink_loader.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "kvcodec/result.h"

namespace kvcodec {

// The entry points that dynlink_loader.h lacks.
struct CudaExtras {
  CUresult(CUDAAPI* mem_host_alloc)(void** pointer, size_t bytes, unsigned flags);
  CUresult(CUDAAPI* mem_free_host)(void* pointer);
  CUresult(CUDAAPI* mem_get_info)(size_t* free, size_t* total);
  CUresult(CUDAAPI* stream_create_with_priority)(CUstream* stream, unsigned flags, int priority);
};

// NVIDIA's driver, loaded when first asked for, and one GPU's primary context (the one that CUDA's
// runtime uses) for as long as this lives. Thread-safe.
class CudaDriver {
 public:
  // unsupported where there is no driver or no such GPU; the message says which.
  static Result<std::shared_ptr<const CudaDriver>> open(int device);
  ~CudaDriver();
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  const CudaFunctions& cuda() const { return *cuda_; }
  const CudaExtras& extras() const { return extras_; }
  const std::string& gpu() const { return gpu_; }
  CUcontext context() const { return context_; }
  // ok for CUDA_SUCCESS, else a device error that names the call.
  Status check(CUresult result, const char* call) const;
  // CUDA's priority: 0, the lowest, gives way to all smaller numbers; cut to what the GPU has. The
  // context must be current.
  Result<CUstream> new_stream(int priority) const;
  Result<CUstream> new_low_priority_stream() const { return new_stream(0); }

 private:
  CudaDriver() = default;
  Status load();
  Status select(int device);

  CudaFunctions* cuda_ = nullptr;
  CudaExtras extras_ = {};
  std::string gpu_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

// Makes a driver's context current in this thread for a scope.
class CudaScope {
 public:
  explicit CudaScope(const CudaDriver& driver) : driver_(driver) {
    driver_.cuda().cuCtxPushCurrent(driver_.context());
  }
  ~CudaScope() {
    CUcontext old;
    driver_.cuda().cuCtxPopCurrent(&old);
  }
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  const CudaDriver& driver_;
};

// Page-locked memory, which the GPU reads and writes without a detour. Empty or owning; the driver
// must outlive it.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  static Result<PinnedBuffer> allocate(const CudaDriver& driver, size_t bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~PinnedBuffer();

  std::byte* data() const { return static_cast<std::byte*>(bytes_); }
  size_t size() const { return size_; }

 private:
  void swap(PinnedBuffer& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(bytes_, other.bytes_);
    std::swap(size_, other.size_);
  }
  const CudaDriver* driver_ = nullptr;
  void* bytes_ = nullptr;
  size_t size_ = 0;
};

// Likewise in device memory.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> allocate(const CudaDriver& driver, size_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer();

  CUdeviceptr data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  const CudaDriver* driver_ = nullptr;
  CUdeviceptr data_ = 0;
  size_t size_ = 0;
};

}  // namespace kvcodec
