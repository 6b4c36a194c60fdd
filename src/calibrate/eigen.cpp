// SPDX-License-Identifier: Apache-2.0
#include "calibrate/eigen.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

// NOLINTNEXTLINE(readability-identifier-naming): LAPACK's
extern "C" void ssyevd_(const char* jobz, const char* uplo, const blasint* n, float* a,
                        const blasint* lda, float* w, float* work, const blasint* lwork,
                        blasint* iwork, const blasint* liwork, blasint* info);

namespace kvcodec::calibration {

Result<Eigen> symmetric_eigen(std::vector<float> matrix, size_t n) {
  Eigen eigen;
  if (n == 0) return eigen;
  // LAPACK may loop for ever on a NaN.
  if (!std::all_of(matrix.begin(), matrix.end(), [](float x) { return std::isfinite(x); }))
    return make_error(ErrorCode::internal, "eigenvectors of a matrix of {} rows: not finite", n);
  const auto size = static_cast<blasint>(n);
  const auto work_size = static_cast<blasint>(1 + 6 * n + 2 * n * n);
  const auto iwork_size = static_cast<blasint>(3 + 5 * n);
  std::vector<float> work(static_cast<size_t>(work_size));
  std::vector<blasint> iwork(static_cast<size_t>(iwork_size));
  eigen.values.resize(n);
  blasint info = 0;
  // A row-major lower triangle is LAPACK's upper one.
  ssyevd_("V", "U", &size, matrix.data(), &size, eigen.values.data(), work.data(), &work_size,
          iwork.data(), &iwork_size, &info);
  if (info != 0)
    return make_error(ErrorCode::internal, "eigenvectors of a matrix of {} rows: ssyevd: {}", n,
                      info);
  // Columns of LAPACK's matrix are our rows; ascending becomes descending.
  std::reverse(eigen.values.begin(), eigen.values.end());
  for (size_t low = 0, high = n - 1; low < high; ++low, --high)
    std::swap_ranges(&matrix[low * n], &matrix[low * n] + n, &matrix[high * n]);
  for (size_t i = 0; i < n; ++i) {
    float* row = &matrix[i * n];
    const float* largest = std::max_element(
        row, row + n, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    if (*largest < 0) std::transform(row, row + n, row, [](float x) { return -x; });
  }
  eigen.vectors = std::move(matrix);
  return eigen;
}

Result<Roots> symmetric_roots(std::vector<float> matrix, size_t n, double floor) {
  KVCODEC_TRY(const Eigen eigen, symmetric_eigen(std::move(matrix), n));
  Roots roots;
  if (n == 0) return roots;
  const double least = eigen.values[0] * floor;
  if (!(least > 0))
    return make_error(ErrorCode::internal, "square root of a matrix of {} rows: it is zero", n);
  for (const bool inverse : {false, true}) {
    std::vector<float> scaled(n * n), result(n * n);
    for (size_t i = 0; i < n; ++i) {
      const double value = std::max<double>(eigen.values[i], least);
      const double factor = std::pow(value, inverse ? -0.5 : 0.5);
      for (size_t j = 0; j < n; ++j)
        scaled[i * n + j] = static_cast<float>(eigen.vectors[i * n + j] * factor);
    }
    const auto size = static_cast<blasint>(n);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, size, size, size, 1.0f,
                eigen.vectors.data(), size, scaled.data(), size, 0.0f, result.data(), size);
    (inverse ? roots.inverse : roots.root) = std::move(result);
  }
  return roots;
}

}  // namespace kvcodec::calibration
