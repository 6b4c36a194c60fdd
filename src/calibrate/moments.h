// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvcodec::calibration {

// Mean and covariance of vectors of `channels` numbers, summed as they come: memory is
// channels^2 numbers, whatever their count. Sums are taken of what exceeds a fixed shift (the
// first batch's mean), so that a mean far from zero costs no digits. The same batches in the same
// order give the same bits on one kind of processor and number of BLAS threads. Not thread-safe.
class Moments {
 public:
  explicit Moments(size_t channels);

  // `rows` is [tokens][channels], `stride` numbers from one token to the next.
  void add(const float* rows, size_t tokens, size_t stride);

  size_t channels() const { return shift_.size(); }
  uint64_t tokens() const { return tokens_; }
  std::vector<float> mean() const;
  // [channels][channels], both triangles. Requires tokens() > 0.
  std::vector<float> covariance() const;

  // What has been summed, for a state file: restore() of what state() gave goes on where it was.
  struct State {
    uint64_t tokens = 0;
    std::vector<float> shift;
    std::vector<double> sum;      // of x - shift
    std::vector<float> products;  // of (x - shift)(x - shift)^T: the lower triangle, row-major
  };
  const std::vector<float>& shift() const { return shift_; }
  const std::vector<double>& sum() const { return sum_; }
  const std::vector<float>& products() const { return products_; }
  // Requires vectors of the sizes that channels() asks for.
  void restore(State state);

 private:
  uint64_t tokens_ = 0;
  std::vector<float> shift_;
  std::vector<double> sum_;
  std::vector<float> products_;
  std::vector<float> shifted_;
};

}  // namespace kvcodec::calibration
