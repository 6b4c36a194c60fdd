// SPDX-License-Identifier: Apache-2.0
#include "restore/cuda_kernels.h"

#include <algorithm>
#include <array>

#include "base/cuda_images.h"

namespace kvcodec::restore {
namespace {

constexpr std::array<const char*, kKernels> kNames = {
    "turn_table",    "picture_checksums", "layer_values",  "component_values", "escape_values",
    "basis_product", "codes_product",     "finish_values", "exact_elements"};

uint32_t ceil_div(uint64_t n, uint64_t by) { return static_cast<uint32_t>((n + by - 1) / by); }

size_t tile_bytes(uint32_t dim) { return size_t{dim} * (kTileTokens + 1) * 4; }

}  // namespace

Result<std::unique_ptr<CudaKernels>> CudaKernels::load(const CudaDriver& driver) {
  KVCODEC_TRY(auto module, CudaModule::load(driver, cuda_images().restore, kNames));
  return std::unique_ptr<CudaKernels>(new CudaKernels(std::move(module)));
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
                kProductThreads, 0, stream, &a);
}

Status CudaKernels::run(const CodesProductArguments& a, CUstream stream) const {
  return launch(Kernel::codes_product,
                {ceil_div(a.tokens, kProductColumns), ceil_div(a.rows, kProductRows)},
                kProductThreads, 0, stream, &a);
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
