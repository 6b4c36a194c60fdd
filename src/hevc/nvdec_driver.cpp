// SPDX-License-Identifier: Apache-2.0
#include "hevc/nvdec_driver.h"

#include "base/error.h"

namespace kvcodec::hevc {

Result<std::unique_ptr<NvdecDriver>> NvdecDriver::open(int device) {
  auto nvdec = std::unique_ptr<NvdecDriver>(new NvdecDriver);
  auto driver = CudaDriver::open(device);
  if (!driver.ok()) {
    return make_error(driver.error().code, "NVDEC: {}", driver.error().message);
  }
  nvdec->driver_ = *std::move(driver);
  if (cuvid_load_functions(&nvdec->cuvid_, nullptr) != 0 ||
      nvdec->cuvid_->cuvidGetDecoderCaps == nullptr) {
    return make_error(ErrorCode::unsupported,
                      "NVDEC: the NVIDIA driver lacks its video decoder (libnvcuvid.so.1; in a "
                      "container, NVIDIA_DRIVER_CAPABILITIES must name video)");
  }
  KVCODEC_CHECK(nvdec->query());
  return nvdec;
}

NvdecDriver::~NvdecDriver() { cuvid_free_functions(&cuvid_); }

Status NvdecDriver::query() {
  const CudaScope scope(*driver_);
  CUVIDDECODECAPS caps = {};
  caps.eCodecType = cudaVideoCodec_HEVC;
  caps.eChromaFormat = cudaVideoChromaFormat_420;
  KVCODEC_CHECK(check(cuvid_->cuvidGetDecoderCaps(&caps), "cuvidGetDecoderCaps"));
  if (caps.bIsSupported == 0 || (caps.nOutputFormatMask & 1u << cudaVideoSurfaceFormat_NV12) == 0) {
    return make_error(ErrorCode::unsupported, "NVDEC: {} does not decode HEVC 4:2:0 of 8 bits",
                      driver_->gpu());
  }
  info_ = {.gpu = driver_->gpu(),
           .engines = caps.nNumNVDECs > 0 ? caps.nNumNVDECs : 1u,
           .min_width = caps.nMinWidth,
           .min_height = caps.nMinHeight,
           .max_width = caps.nMaxWidth,
           .max_height = caps.nMaxHeight};
  return ok_status();
}

}  // namespace kvcodec::hevc
