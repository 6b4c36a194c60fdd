// SPDX-License-Identifier: Apache-2.0
#include "restore/cuda_kernels.h"

#include <dlfcn.h>

#include <algorithm>

#include "base/error.h"
#include "restore/kernel_image.h"

namespace kvcodec::restore {
namespace {

constexpr std::array<const char*, kKernels> kNames = {
    "turn_table",    "picture_checksums", "layer_values",  "component_values",
    "escape_values", "basis_product",     "finish_values", "exact_elements"};

constexpr int kMaxDynamicSharedBytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr size_t kDefaultSharedBytes = 48 << 10;
constexpr size_t kWantedSharedBytes = 96 << 10;

uint32_t ceil_div(uint64_t n, uint64_t by) { return static_cast<uint32_t>((n + by - 1) / by); }

size_t tile_bytes(uint32_t dim) { return size_t{dim} * (kTileTokens + 1) * 4; }

}  // namespace

Result<std::unique_ptr<CudaKernels>> CudaKernels::load(const CudaDriver& driver) {
  if (kernel_image() == nullptr) {
    return make_error(ErrorCode::unsupported,
                      "this build has no CUDA kernels (nvcc was missing when it was made)");
  }
  auto kernels = std::unique_ptr<CudaKernels>(new CudaKernels(driver));
  if (const CUresult result = driver.cuda().cuModuleLoadData(&kernels->module_, kernel_image());
      result != CUDA_SUCCESS) {
    return make_error(ErrorCode::unsupported, "the CUDA kernels do not load on {}: {}",
                      driver.gpu(), driver.check(result, "cuModuleLoadData").error().message);
  }
  const auto set_attribute = reinterpret_cast<CUresult(CUDAAPI*)(CUfunction, int, int)>(
      dlsym(driver.cuda().lib, "cuFuncSetAttribute"));
  kernels->max_shared_bytes_ = kWantedSharedBytes;
  for (size_t i = 0; i < kKernels; ++i) {
    KVCODEC_CHECK(driver.check(
        driver.cuda().cuModuleGetFunction(&kernels->functions_[i], kernels->module_, kNames[i]),
        kNames[i]));
    if (set_attribute == nullptr ||
        set_attribute(kernels->functions_[i], kMaxDynamicSharedBytes,
                      static_cast<int>(kWantedSharedBytes)) != CUDA_SUCCESS) {
      kernels->max_shared_bytes_ = kDefaultSharedBytes;
    }
  }
  return kernels;
}

CudaKernels::~CudaKernels() {
  if (module_ == nullptr) return;
  const CudaScope scope(driver_);
  driver_.cuda().cuModuleUnload(module_);
}

Status CudaKernels::launch(Kernel kernel, Grid grid, uint32_t threads, size_t shared_bytes,
                           CUstream stream, const void* arguments) const {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return ok_status();
  const auto index = static_cast<size_t>(kernel);
  if (shared_bytes > max_shared_bytes_) {
    return make_error(ErrorCode::unsupported,
                      "kernel {}: needs {} bytes of shared memory a block, {} has {}",
                      kNames[index], shared_bytes, driver_.gpu(), max_shared_bytes_);
  }
  void* parameters[] = {const_cast<void*>(arguments)};
  return driver_.check(driver_.cuda().cuLaunchKernel(
                           functions_[index], grid.x, grid.y, grid.z, threads, 1, 1,
                           static_cast<unsigned>(shared_bytes), stream, parameters, nullptr),
                       kNames[index]);
}

Status CudaKernels::run(const TurnArguments& a, CUstream stream) const {
  return launch(Kernel::turn_table, {ceil_div(uint64_t{a.pairs} * a.tokens, kBlockThreads)},
                kBlockThreads, 0, stream, &a);
}

Status CudaKernels::run(const ChecksumArguments& a, CUstream stream) const {
  return launch(Kernel::picture_checksums, {a.pictures}, 32, 0, stream, &a);
}

Status CudaKernels::run(const LayerValuesArguments& a, CUstream stream) const {
  return launch(Kernel::layer_values, {a.rows},
                std::min(kBlockThreads, ceil_div(a.tokens, 32) * 32), 0, stream, &a);
}

Status CudaKernels::run(const ComponentValuesArguments& a, CUstream stream) const {
  return launch(Kernel::component_values,
                {ceil_div(uint64_t{a.rows} * a.tokens, 4 * kBlockThreads)}, kBlockThreads, 0,
                stream, &a);
}

Status CudaKernels::run(const EscapeArguments& a, CUstream stream) const {
  return launch(Kernel::escape_values, {ceil_div(a.count, kBlockThreads)}, kBlockThreads, 0, stream,
                &a);
}

Status CudaKernels::run(const ProductArguments& a, CUstream stream) const {
  return launch(Kernel::basis_product,
                {ceil_div(a.tokens, kProductColumns), ceil_div(a.rows, kProductRows)},
                kBlockThreads, 0, stream, &a);
}

Status CudaKernels::run(const FinishArguments& a, CUstream stream) const {
  return launch(Kernel::finish_values, {ceil_div(a.tokens, kTileTokens), a.heads, a.layers},
                kBlockThreads, tile_bytes(a.dim), stream, &a);
}

Status CudaKernels::run(const ExactArguments& a, CUstream stream) const {
  return launch(Kernel::exact_elements, {ceil_div(a.tokens, kTileTokens), a.heads, a.layers},
                kBlockThreads, tile_bytes(a.dim), stream, &a);
}

}  // namespace kvcodec::restore
