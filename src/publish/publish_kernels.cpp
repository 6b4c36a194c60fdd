// SPDX-License-Identifier: Apache-2.0
#include "publish/publish_kernels.h"

#include <array>

#include "base/cuda_images.h"

namespace kvcodec::publish {
namespace {

enum Kernel : size_t {
  kElements,
  kSinks,
  kValues,
  kRowKeys,
  kSplit,
  kSort,
  kStatistics,
  kSteps,
  kQuantise,
  kPlace,
  kCentre,
  kAnalysis,
  kComponents,
  kLower,
  kErrors,
  kRowProducts,
  kPanelSums,
  kRowErrors,
};
constexpr const char* kNames[] = {"gather_elements",
                                  "gather_sinks",
                                  "gather_values",
                                  "row_keys",
                                  "split_rows",
                                  "sort_rows",
                                  "row_statistics",
                                  "fit_steps",
                                  "quantise_rows",
                                  "place_rows",
                                  "centre_values",
                                  "analysis_product",
                                  "quantise_component_rows",
                                  "lower_component_rows",
                                  "restore_errors",
                                  "row_products",
                                  "panel_sums",
                                  "row_errors"};

uint32_t ceil_div(uint64_t n, uint64_t by) { return static_cast<uint32_t>((n + by - 1) / by); }

size_t tile_bytes(uint32_t dim) { return size_t{dim} * (kTileTokens + 1) * 4; }

CudaGrid tiles_of(const GroupSource& source) {
  return {ceil_div(source.tokens, kTileTokens), source.heads, source.layers};
}

// Of kernels whose rows have kRowLanes threads each.
CudaGrid rows_of(uint32_t rows, uint32_t panels = 1) {
  return {ceil_div(uint64_t{rows} * kRowLanes, kBlockThreads), panels};
}

}  // namespace

Result<std::unique_ptr<PublishKernels>> PublishKernels::load(const CudaDriver& driver) {
  KVCODEC_TRY(auto module, CudaModule::load(driver, cuda_images().publish, kNames));
  return std::unique_ptr<PublishKernels>(new PublishKernels(std::move(module)));
}

Status PublishKernels::run(const ElementsArguments& a, CUstream stream) const {
  return module_->launch(kElements, tiles_of(a.source), kBlockThreads, tile_bytes(a.source.dim),
                         stream, &a);
}

Status PublishKernels::run(const SinksArguments& a, CUstream stream) const {
  return module_->launch(kSinks, {a.source.sinks, a.source.layers}, kBlockThreads, 0, stream, &a);
}

Status PublishKernels::run(const ValuesArguments& a, CUstream stream) const {
  return module_->launch(kValues, tiles_of(a.source), kBlockThreads, tile_bytes(a.source.dim),
                         stream, &a);
}

Status PublishKernels::run(const RowKeysArguments& a, CUstream stream) const {
  return module_->launch(kRowKeys, {ceil_div(uint64_t{a.rows} * 32, kBlockThreads)}, kBlockThreads,
                         0, stream, &a);
}

Status PublishKernels::run(const SplitArguments& a, CUstream stream) const {
  return module_->launch(kSplit, {a.rows}, 128, 0, stream, &a);
}

Status PublishKernels::run(const SortArguments& a, CUstream stream) const {
  return module_->launch(kSort, {a.rows > 0 ? 1u : 0u}, 256, 0, stream, &a);
}

Status PublishKernels::run(const StatisticsArguments& a, CUstream stream) const {
  return module_->launch(kStatistics, rows_of(a.rows), kBlockThreads, 0, stream, &a);
}

Status PublishKernels::run(const StepsArguments& a, CUstream stream) const {
  return module_->launch(kSteps, {a.layers}, kBlockThreads, 0, stream, &a);
}

Status PublishKernels::run(const QuantiseArguments& a, CUstream stream) const {
  return module_->launch(kQuantise, rows_of(a.rows), kBlockThreads, 0, stream, &a);
}

Status PublishKernels::run(const PlaceArguments& a, CUstream stream) const {
  return module_->launch(kPlace, {a.rows}, 64, 0, stream, &a);
}

Status PublishKernels::run(const CentreArguments& a, CUstream stream) const {
  return module_->launch(kCentre, {a.channels}, 128, 0, stream, &a);
}

Status PublishKernels::run(const AnalysisArguments& a, CUstream stream) const {
  return module_->launch(kAnalysis,
                         {ceil_div(a.tokens, restore::kProductColumns),
                          ceil_div(a.rows, restore::kProductRows), a.batches},
                         restore::kProductThreads, 0, stream, &a);
}

Status PublishKernels::run(const ComponentsArguments& a, CUstream stream) const {
  return module_->launch(kComponents, rows_of(a.components), kBlockThreads, 0, stream, &a);
}

Status PublishKernels::run(const LowerArguments& a, CUstream stream) const {
  return module_->launch(kLower, rows_of(a.components), kBlockThreads, 0, stream, &a);
}

Status PublishKernels::run(const ErrorsArguments& a, CUstream stream) const {
  return module_->launch(kErrors, tiles_of(a.source), kBlockThreads, 2 * tile_bytes(a.source.dim),
                         stream, &a);
}

Status PublishKernels::run(const RowProductsArguments& a, CUstream stream) const {
  return module_->launch(kRowProducts, rows_of(a.rows, ceil_div(a.tokens, kPanel)), kBlockThreads,
                         0, stream, &a);
}

Status PublishKernels::run(const PanelSumsArguments& a, CUstream stream) const {
  return module_->launch(kPanelSums, {a.panels}, kBlockThreads, 0, stream, &a);
}

Status PublishKernels::run(const RowErrorsArguments& a, CUstream stream) const {
  return module_->launch(kRowErrors, rows_of(a.rows), kBlockThreads, 0, stream, &a);
}

}  // namespace kvcodec::publish
