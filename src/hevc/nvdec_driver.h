// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/cuda.h"
#include "hevc/nvdec.h"

namespace kvcodec::hevc {

// The driver's video decoder on one GPU. Thread-safe.
class NvdecDriver {
 public:
  static Result<std::unique_ptr<NvdecDriver>> open(int device);
  ~NvdecDriver();
  NvdecDriver(const NvdecDriver&) = delete;
  NvdecDriver& operator=(const NvdecDriver&) = delete;

  const CudaDriver& driver() const { return *driver_; }
  const CudaFunctions& cuda() const { return driver_->cuda(); }
  const CuvidFunctions& cuvid() const { return *cuvid_; }
  const NvdecInfo& info() const { return info_; }
  Status check(CUresult result, const char* call) const { return driver_->check(result, call); }

 private:
  NvdecDriver() = default;
  Status query();

  std::shared_ptr<const CudaDriver> driver_;
  CuvidFunctions* cuvid_ = nullptr;
  NvdecInfo info_;
};

}  // namespace kvcodec::hevc
