// SPDX-License-Identifier: Apache-2.0
#include "base/cuda.h"

#include <dlfcn.h>

#include <array>

#include "base/error.h"

namespace kvcodec {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<std::shared_ptr<const CudaDriver>> CudaDriver::open(int device) {
  auto driver = std::shared_ptr<CudaDriver>(new CudaDriver);
  KVCODEC_CHECK(driver->load());
  KVCODEC_CHECK(driver->select(device));
  return std::shared_ptr<const CudaDriver>(std::move(driver));
}

CudaDriver::~CudaDriver() {
  if (context_ != nullptr) cuda_->cuDevicePrimaryCtxRelease(device_);
  cuda_free_functions(&cuda_);
}

Status CudaDriver::check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return ok_status();
  const char* name = "unknown error";
  cuda_->cuGetErrorName(result, &name);
  return make_error(ErrorCode::device, "{}: {} ({})", call, name, static_cast<int>(result));
}

Status CudaDriver::load() {
  if (cuda_load_functions(&cuda_, nullptr) != 0) {
    return make_error(ErrorCode::unsupported,
                      "no NVIDIA driver (libcuda.so.1 or a symbol of it is missing)");
  }
  if (!find(cuda_->lib, "cuMemHostAlloc", extras_.mem_host_alloc) ||
      !find(cuda_->lib, "cuMemFreeHost", extras_.mem_free_host) ||
      !find(cuda_->lib, "cuMemGetInfo_v2", extras_.mem_get_info) ||
      !find(cuda_->lib, "cuStreamCreateWithPriority", extras_.stream_create_with_priority)) {
    return make_error(ErrorCode::unsupported, "the NVIDIA driver is too old");
  }
  return ok_status();
}

Status CudaDriver::select(int device) {
  if (const CUresult result = cuda_->cuInit(0); result != CUDA_SUCCESS)
    return Error{ErrorCode::unsupported, check(result, "cuInit").error().message};
  int count = 0;
  KVCODEC_CHECK(check(cuda_->cuDeviceGetCount(&count), "cuDeviceGetCount"));
  if (device < 0 || device >= count) {
    return make_error(ErrorCode::unsupported, "GPU: expected one in [0, {}), found {}", count,
                      device);
  }
  KVCODEC_CHECK(check(cuda_->cuDeviceGet(&device_, device), "cuDeviceGet"));
  std::array<char, 256> name = {};
  KVCODEC_CHECK(
      check(cuda_->cuDeviceGetName(name.data(), static_cast<int>(name.size() - 1), device_),
            "cuDeviceGetName"));
  gpu_ = name.data();
  return check(cuda_->cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

Result<CUstream> CudaDriver::new_stream(int priority) const {
  CUstream stream = nullptr;
  KVCODEC_CHECK(
      check(extras_.stream_create_with_priority(&stream, CU_STREAM_NON_BLOCKING, priority),
            "cuStreamCreateWithPriority"));
  return stream;
}

Result<PinnedBuffer> PinnedBuffer::allocate(const CudaDriver& driver, size_t bytes) {
  const CudaScope scope(driver);
  PinnedBuffer buffer;
  KVCODEC_CHECK(
      driver.check(driver.extras().mem_host_alloc(&buffer.bytes_, bytes, 0), "cuMemHostAlloc"));
  buffer.driver_ = &driver;
  buffer.size_ = bytes;
  return buffer;
}

PinnedBuffer::~PinnedBuffer() {
  if (bytes_ == nullptr) return;
  const CudaScope scope(*driver_);
  driver_->extras().mem_free_host(bytes_);
}

Result<DeviceBuffer> DeviceBuffer::allocate(const CudaDriver& driver, size_t bytes) {
  const CudaScope scope(driver);
  DeviceBuffer buffer;
  if (const CUresult result = driver.cuda().cuMemAlloc(&buffer.data_, bytes);
      result != CUDA_SUCCESS) {
    return make_error(ErrorCode::out_of_memory, "{} bytes of device memory: {}", bytes,
                      driver.check(result, "cuMemAlloc").error().message);
  }
  buffer.driver_ = &driver;
  buffer.size_ = bytes;
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ == 0) return;
  const CudaScope scope(*driver_);
  driver_->cuda().cuMemFree(data_);
}

}  // namespace kvcodec
