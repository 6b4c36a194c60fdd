// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "kvcodec/result.h"

namespace kvcodec::calibration {

struct Eigen {
  std::vector<float> values;   // [n], descending
  std::vector<float> vectors;  // [n][n], row i belongs to values[i]; rows are orthonormal, and the
                               // largest number of a row is positive
};

// Of the symmetric matrix [n][n], whose lower triangle is read: LAPACK's ssyevd (divide and
// conquer). Takes 3 n^2 numbers of memory beside the result. internal where it does not converge
// or the matrix is not finite.
Result<Eigen> symmetric_eigen(std::vector<float> matrix, size_t n);

// M^(1/2) and M^(-1/2) of a symmetric positive semidefinite matrix [n][n]. Eigenvalues below
// `floor` times the largest are taken to be that, so that the inverse exists; an all-zero matrix
// is internal.
struct Roots {
  std::vector<float> root, inverse;  // [n][n], symmetric
};
Result<Roots> symmetric_roots(std::vector<float> matrix, size_t n, double floor);

}  // namespace kvcodec::calibration
