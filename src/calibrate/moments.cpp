// SPDX-License-Identifier: Apache-2.0
#include "calibrate/moments.h"

#include <cblas.h>

#include <utility>

namespace kvcodec::calibration {

Moments::Moments(size_t channels)
    : shift_(channels), sum_(channels), products_(channels * channels) {}

void Moments::add(const float* rows, size_t tokens, size_t stride) {
  const size_t n = channels();
  if (tokens == 0 || n == 0) return;
  if (tokens_ == 0) {
    std::vector<double> first(n);
    for (size_t t = 0; t < tokens; ++t)
      for (size_t c = 0; c < n; ++c) first[c] += rows[t * stride + c];
    for (size_t c = 0; c < n; ++c)
      shift_[c] = static_cast<float>(first[c] / static_cast<double>(tokens));
  }
  shifted_.resize(tokens * n);
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t c = 0; c < n; ++c) {
      const float value = rows[t * stride + c] - shift_[c];
      shifted_[t * n + c] = value;
      sum_[c] += value;
    }
  }
  cblas_ssyrk(CblasRowMajor, CblasLower, CblasTrans, static_cast<blasint>(n),
              static_cast<blasint>(tokens), 1.0f, shifted_.data(), static_cast<blasint>(n), 1.0f,
              products_.data(), static_cast<blasint>(n));
  tokens_ += tokens;
}

std::vector<float> Moments::mean() const {
  std::vector<float> mean(channels());
  for (size_t c = 0; c < mean.size(); ++c) {
    const double beyond = tokens_ == 0 ? 0 : sum_[c] / static_cast<double>(tokens_);
    mean[c] = static_cast<float>(shift_[c] + beyond);
  }
  return mean;
}

std::vector<float> Moments::covariance() const {
  const size_t n = channels();
  const auto count = static_cast<double>(tokens_);
  std::vector<float> covariance(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      const double value = products_[i * n + j] / count - sum_[i] / count * (sum_[j] / count);
      covariance[i * n + j] = covariance[j * n + i] = static_cast<float>(value);
    }
  }
  return covariance;
}

void Moments::restore(State state) {
  tokens_ = state.tokens;
  shift_ = std::move(state.shift);
  sum_ = std::move(state.sum);
  products_ = std::move(state.products);
}

}  // namespace kvcodec::calibration
