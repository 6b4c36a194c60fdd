// SPDX-License-Identifier: Apache-2.0
#include "calibrate/basis_fit.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "calibrate/eigen.h"

namespace kvcodec::calibration {
namespace {

// A symmetric block-diagonal matrix: blocks of `size` rows, one after the other.
struct BlockMatrix {
  size_t size = 0;
  std::vector<float> blocks;
};

// rows [count][C] times the matrix, in place.
void multiply_rows(std::vector<float>& rows, size_t count, const BlockMatrix& matrix) {
  const size_t per_block = matrix.size * matrix.size;
  const size_t channels = matrix.blocks.size() / matrix.size;
  std::vector<float> out(count * matrix.size);
  const auto size = static_cast<blasint>(matrix.size);
  for (size_t b = 0; b * per_block < matrix.blocks.size(); ++b) {
    float* part = &rows[b * matrix.size];
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<blasint>(count), size, size,
                1.0f, part, static_cast<blasint>(channels), &matrix.blocks[b * per_block], size,
                0.0f, out.data(), size);
    for (size_t i = 0; i < count; ++i)
      std::copy_n(&out[i * matrix.size], matrix.size, part + i * channels);
  }
}

void transpose(std::vector<float>& square, size_t n) {
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j) std::swap(square[i * n + j], square[j * n + i]);
}

struct MetricRoots {
  BlockMatrix root, inverse;
};

// Raises the metric to its floor, so that what the profile stores is what the basis was made with.
Result<MetricRoots> roots_of(std::vector<float>& metric, size_t block, const std::string& name) {
  MetricRoots roots;
  roots.root.size = roots.inverse.size = block;
  const size_t per_block = block * block;
  const size_t blocks = metric.size() / per_block;
  double trace = 0;
  for (size_t b = 0; b < blocks; ++b)
    for (size_t i = 0; i < block; ++i) trace += metric[b * per_block + i * (block + 1)];
  const double floor = kMetricFloor * trace / static_cast<double>(blocks * block);
  if (!(floor > 0) || !std::isfinite(floor))
    return make_error(ErrorCode::invalid_argument, "metric of {}: its trace is {}", name, trace);
  for (size_t b = 0; b < blocks; ++b) {
    float* one = &metric[b * per_block];
    for (size_t i = 0; i < block; ++i) one[i * (block + 1)] += static_cast<float>(floor);
    KVCODEC_TRY(const Roots r, symmetric_roots({one, one + per_block}, block, kMetricFloor));
    roots.root.blocks.insert(roots.root.blocks.end(), r.root.begin(), r.root.end());
    roots.inverse.blocks.insert(roots.inverse.blocks.end(), r.inverse.begin(), r.inverse.end());
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<blasint>(block),
                static_cast<blasint>(block), static_cast<blasint>(block), 1.0f, r.root.data(),
                static_cast<blasint>(block), r.root.data(), static_cast<blasint>(block), 0.0f, one,
                static_cast<blasint>(block));
  }
  return roots;
}

}  // namespace

Result<ProfileGroup> fit_group(const Moments& moments, const GroupPlace& place,
                               std::vector<float> metric, size_t block) {
  const size_t channels = moments.channels();
  const std::string name = fmt::format("{} of layers {} to {}", kv_kind_name(place.kind),
                                       place.first_layer, place.first_layer + place.layers - 1);
  if (moments.tokens() < 2 || block == 0 || channels % block != 0 ||
      metric.size() != channels * block)
    return make_error(ErrorCode::invalid_argument,
                      "basis of {}: {} tokens of {} channels, metric of {} numbers in blocks of {}",
                      name, moments.tokens(), channels, metric.size(), block);
  KVCODEC_TRY(const MetricRoots roots, roots_of(metric, block, name));
  std::vector<float> covariance = moments.covariance();
  multiply_rows(covariance, channels, roots.root);
  transpose(covariance, channels);
  multiply_rows(covariance, channels, roots.root);
  KVCODEC_TRY(Eigen eigen, symmetric_eigen(std::move(covariance), channels));
  multiply_rows(eigen.vectors, channels, roots.inverse);

  ProfileGroup group;
  group.kind = place.kind;
  group.first_layer = place.first_layer;
  group.layers = place.layers;
  group.components = static_cast<uint32_t>(channels);
  group.mean = moments.mean();
  group.basis = std::move(eigen.vectors);
  group.metric = std::move(metric);
  group.variance = std::move(eigen.values);
  // What rounding made of a variance of zero may be below it.
  for (float& variance : group.variance) variance = std::max(variance, 0.0f);
  return group;
}

void truncate_components(ProfileGroup& group, double least) {
  const auto kept = std::partition_point(group.variance.begin(), group.variance.end(),
                                         [least](float v) { return v >= least; });
  const size_t count = std::max<size_t>(1, static_cast<size_t>(kept - group.variance.begin()));
  group.components = static_cast<uint32_t>(count);
  group.variance.resize(count);
  group.basis.resize(count * group.mean.size());
}

}  // namespace kvcodec::calibration
