// SPDX-License-Identifier: Apache-2.0
#include "base/cuda_module.h"

#include <dlfcn.h>

#include "base/error.h"

namespace kvcodec {
namespace {

constexpr int kMaxDynamicSharedBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr size_t kDefaultSharedBytes = 48 << 10;
constexpr size_t kWantedSharedBytes = 96 << 10;

}  // namespace

Result<std::unique_ptr<CudaModule>> CudaModule::load(const CudaDriver& driver, const void* image,
                                                     std::span<const char* const> names) {
  if (image == nullptr) {
    return make_error(ErrorCode::unsupported,
                      "this build has no CUDA kernels (nvcc was missing when it was made)");
  }
  auto module = std::unique_ptr<CudaModule>(new CudaModule(driver));
  if (const CUresult result = driver.cuda().cuModuleLoadData(&module->module_, image);
      result != CUDA_SUCCESS) {
    return make_error(ErrorCode::unsupported, "the CUDA kernels do not load on {}: {}",
                      driver.gpu(), driver.check(result, "cuModuleLoadData").error().message);
  }
  const auto set_attribute = reinterpret_cast<CUresult(CUDAAPI*)(CUfunction, int, int)>(
      dlsym(driver.cuda().lib, "cuFuncSetAttribute"));
  module->max_shared_bytes_ = kWantedSharedBytes;
  module->names_ = names;
  for (const char* name : names) {
    CUfunction function = nullptr;
    KVCODEC_CHECK(
        driver.check(driver.cuda().cuModuleGetFunction(&function, module->module_, name), name));
    module->functions_.push_back(function);
    if (set_attribute == nullptr ||
        set_attribute(function, kMaxDynamicSharedBytes, static_cast<int>(kWantedSharedBytes)) !=
            CUDA_SUCCESS) {
      module->max_shared_bytes_ = kDefaultSharedBytes;
    }
  }
  return module;
}

CudaModule::~CudaModule() {
  if (module_ == nullptr) return;
  const CudaScope scope(driver_);
  driver_.cuda().cuModuleUnload(module_);
}

Status CudaModule::launch(size_t kernel, CudaGrid grid, uint32_t threads, size_t shared_bytes,
                          CUstream stream, const void* arguments) const {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return ok_status();
  if (shared_bytes > max_shared_bytes_) {
    return make_error(ErrorCode::unsupported,
                      "kernel {}: needs {} bytes of shared memory a block, {} has {}",
                      names_[kernel], shared_bytes, driver_.gpu(), max_shared_bytes_);
  }
  void* parameters[] = {const_cast<void*>(arguments)};
  return driver_.check(driver_.cuda().cuLaunchKernel(
                           functions_[kernel], grid.x, grid.y, grid.z, threads, 1, 1,
                           static_cast<unsigned>(shared_bytes), stream, parameters, nullptr),
                       names_[kernel]);
}

}  // namespace kvcodec
