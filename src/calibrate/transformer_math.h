// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace kvcodec::calibration {

// out [m][n] (+)= a [m][k] b [n][k]^T: activations by a matrix of weights.
void multiply_transposed(const float* a, const float* b, float* out, size_t m, size_t n, size_t k,
                         bool add = false);
// out [m][n] (+)= a [m][k] b [k][n]: gradients by a matrix of weights.
void multiply(const float* a, const float* b, float* out, size_t m, size_t n, size_t k,
              bool add = false);
// out [m][n] = a [k][m]^T b [k][n].
void multiply_by_tokens(const float* a, const float* b, float* out, size_t m, size_t n, size_t k);

// x / rms(x) * weight, a row of weight.size() at a time; 1 / rms goes to inverse_rms.
std::vector<float> rms_norm(const std::vector<float>& x, const std::vector<float>& weight,
                            float epsilon, std::vector<float>& inverse_rms);
// Adds to `gradient` that by x, from that by the norm's result.
void rms_norm_backward(const std::vector<float>& out_gradient, const std::vector<float>& x,
                       const std::vector<float>& inverse_rms, const std::vector<float>& weight,
                       std::vector<float>& gradient);
// Softmax of rows of n numbers, in place.
void softmax_rows(float* x, size_t rows, size_t n);

}  // namespace kvcodec::calibration
