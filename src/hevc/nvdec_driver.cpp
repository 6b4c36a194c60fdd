// SPDX-License-Identifier: Apache-2.0
#include "hevc/nvdec_driver.h"

#include <dlfcn.h>

#include <array>

#include "base/error.h"

namespace kvcodec::hevc {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<std::unique_ptr<NvdecDriver>> NvdecDriver::open(int device) {
  auto driver = std::unique_ptr<NvdecDriver>(new NvdecDriver);
  KVCODEC_CHECK(driver->load());
  KVCODEC_CHECK(driver->query(device));
  return driver;
}

NvdecDriver::~NvdecDriver() {
  if (context_ != nullptr) cuda_->cuDevicePrimaryCtxRelease(device_);
  cuvid_free_functions(&cuvid_);
  cuda_free_functions(&cuda_);
}

Status NvdecDriver::check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return ok_status();
  const char* name = "unknown error";
  cuda_->cuGetErrorName(result, &name);
  return make_error(ErrorCode::device, "{}: {} ({})", call, name, static_cast<int>(result));
}

Status NvdecDriver::load() {
  if (cuda_load_functions(&cuda_, nullptr) != 0) {
    return make_error(ErrorCode::unsupported,
                      "NVDEC: no NVIDIA driver (libcuda.so.1 or a symbol of it is missing)");
  }
  if (cuvid_load_functions(&cuvid_, nullptr) != 0 || cuvid_->cuvidGetDecoderCaps == nullptr) {
    return make_error(ErrorCode::unsupported,
                      "NVDEC: the NVIDIA driver lacks its video decoder (libnvcuvid.so.1; in a "
                      "container, NVIDIA_DRIVER_CAPABILITIES must name video)");
  }
  if (!find(cuda_->lib, "cuMemHostAlloc", extras_.cuMemHostAlloc) ||
      !find(cuda_->lib, "cuMemFreeHost", extras_.cuMemFreeHost) ||
      !find(cuda_->lib, "cuStreamCreateWithPriority", extras_.cuStreamCreateWithPriority) ||
      !find(cuda_->lib, "cuCtxGetStreamPriorityRange", extras_.cuCtxGetStreamPriorityRange)) {
    return make_error(ErrorCode::unsupported, "NVDEC: the NVIDIA driver is too old");
  }
  return ok_status();
}

Status NvdecDriver::query(int device) {
  if (const CUresult result = cuda_->cuInit(0); result != CUDA_SUCCESS) {
    return make_error(ErrorCode::unsupported, "NVDEC: {}", check(result, "cuInit").error().message);
  }
  int count = 0;
  KVCODEC_CHECK(check(cuda_->cuDeviceGetCount(&count), "cuDeviceGetCount"));
  if (device < 0 || device >= count) {
    return make_error(ErrorCode::unsupported, "NVDEC: expected a GPU in [0, {}), found {}", count,
                      device);
  }
  KVCODEC_CHECK(check(cuda_->cuDeviceGet(&device_, device), "cuDeviceGet"));
  std::array<char, 256> name = {};
  KVCODEC_CHECK(
      check(cuda_->cuDeviceGetName(name.data(), static_cast<int>(name.size() - 1), device_),
            "cuDeviceGetName"));
  KVCODEC_CHECK(
      check(cuda_->cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain"));
  const ContextScope scope(*this);
  CUVIDDECODECAPS caps = {};
  caps.eCodecType = cudaVideoCodec_HEVC;
  caps.eChromaFormat = cudaVideoChromaFormat_420;
  KVCODEC_CHECK(check(cuvid_->cuvidGetDecoderCaps(&caps), "cuvidGetDecoderCaps"));
  if (caps.bIsSupported == 0 || (caps.nOutputFormatMask & 1u << cudaVideoSurfaceFormat_NV12) == 0) {
    return make_error(ErrorCode::unsupported, "NVDEC: {} does not decode HEVC 4:2:0 of 8 bits",
                      name.data());
  }
  info_ = {.gpu = name.data(),
           .engines = caps.nNumNVDECs > 0 ? caps.nNumNVDECs : 1u,
           .min_width = caps.nMinWidth,
           .min_height = caps.nMinHeight,
           .max_width = caps.nMaxWidth,
           .max_height = caps.nMaxHeight};
  return ok_status();
}

}  // namespace kvcodec::hevc
