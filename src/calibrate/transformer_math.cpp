// SPDX-License-Identifier: Apache-2.0
#include "calibrate/transformer_math.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>

namespace kvcodec::calibration {

namespace {
blasint b(size_t n) { return static_cast<blasint>(n); }
}  // namespace

void multiply_transposed(const float* a, const float* w, float* out, size_t m, size_t n, size_t k,
                         bool add) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, b(m), b(n), b(k), 1.0f, a, b(k), w, b(k),
              add ? 1.0f : 0.0f, out, b(n));
}

void multiply(const float* a, const float* w, float* out, size_t m, size_t n, size_t k, bool add) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, b(m), b(n), b(k), 1.0f, a, b(k), w, b(n),
              add ? 1.0f : 0.0f, out, b(n));
}

void multiply_by_tokens(const float* a, const float* c, float* out, size_t m, size_t n, size_t k) {
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, b(m), b(n), b(k), 1.0f, a, b(m), c, b(n),
              0.0f, out, b(n));
}

std::vector<float> rms_norm(const std::vector<float>& x, const std::vector<float>& weight,
                            float epsilon, std::vector<float>& inverse_rms) {
  const size_t n = weight.size(), rows = x.size() / n;
  std::vector<float> out(x.size());
  inverse_rms.resize(rows);
  for (size_t r = 0; r < rows; ++r) {
    const float* from = &x[r * n];
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += double{from[i]} * from[i];
    const auto scale = static_cast<float>(1 / std::sqrt(sum / static_cast<double>(n) + epsilon));
    inverse_rms[r] = scale;
    for (size_t i = 0; i < n; ++i) out[r * n + i] = from[i] * scale * weight[i];
  }
  return out;
}

void rms_norm_backward(const std::vector<float>& out_gradient, const std::vector<float>& x,
                       const std::vector<float>& inverse_rms, const std::vector<float>& weight,
                       std::vector<float>& gradient) {
  const size_t n = weight.size(), rows = x.size() / n;
  for (size_t r = 0; r < rows; ++r) {
    const float *g = &out_gradient[r * n], *from = &x[r * n];
    double dot = 0;
    for (size_t i = 0; i < n; ++i) dot += double{g[i]} * weight[i] * from[i];
    const float scale = inverse_rms[r];
    const auto along =
        static_cast<float>(dot / static_cast<double>(n) * scale * scale * double{scale});
    for (size_t i = 0; i < n; ++i)
      gradient[r * n + i] += scale * g[i] * weight[i] - from[i] * along;
  }
}

void softmax_rows(float* x, size_t rows, size_t n) {
  for (size_t r = 0; r < rows; ++r, x += n) {
    const float top = *std::max_element(x, x + n);
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
      x[i] = std::exp(x[i] - top);
      sum += x[i];
    }
    const auto scale = static_cast<float>(1 / sum);
    for (size_t i = 0; i < n; ++i) x[i] *= scale;
  }
}

}  // namespace kvcodec::calibration
