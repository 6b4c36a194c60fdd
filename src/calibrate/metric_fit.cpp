// SPDX-License-Identifier: Apache-2.0
#include "calibrate/metric_fit.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"

// NOLINTNEXTLINE(readability-identifier-naming): LAPACK's
extern "C" void dpotrf_(const char* uplo, const blasint* n, double* a, const blasint* lda,
                        blasint* info);
// NOLINTNEXTLINE(readability-identifier-naming): LAPACK's
extern "C" void dpotri_(const char* uplo, const blasint* n, double* a, const blasint* lda,
                        blasint* info);

namespace kvcodec::calibration {
namespace {

// A head that no gradient reached is taken to cost this part of the mean: it may in other texts.
constexpr double kLeastCost = 1e-4;
constexpr double kPriors[] = {0, 0.2, 0.4, 0.6, 0.8, 1};
constexpr double kRidges[] = {0.02, 0.05, 0.1, 0.2, 0.4, 0.8};

// Mean of the diagonal of block `head`.
double mean_diagonal(const std::vector<float>& blocks, size_t head, size_t dim) {
  double sum = 0;
  for (size_t i = 0; i < dim; ++i) sum += blocks[(head * dim + i) * dim + i];
  return sum / static_cast<double>(dim);
}

struct HeadFit {
  double cost = 0;     // tr(moments metric^-1) / dim
  double log_det = 0;  // of the metric, / dim
  bool definite = true;
};

HeadFit fit_of(const float* metric, const float* moments, size_t dim) {
  HeadFit fit;
  std::vector<double> a(metric, metric + dim * dim);
  const auto n = static_cast<blasint>(dim);
  blasint info = 0;
  dpotrf_("L", &n, a.data(), &n, &info);
  for (size_t i = 0; i < dim && info == 0; ++i)
    fit.log_det += 2 * std::log(a[i * (dim + 1)]) / static_cast<double>(dim);
  if (info == 0) dpotri_("L", &n, a.data(), &n, &info);
  fit.definite = info == 0;
  // LAPACK's lower triangle of columns is our upper one of rows.
  for (size_t i = 0; i < dim; ++i) {
    fit.cost += a[i * (dim + 1)] * moments[i * (dim + 1)];
    for (size_t j = i + 1; j < dim; ++j) fit.cost += 2 * a[i * dim + j] * moments[i * dim + j];
  }
  fit.cost /= static_cast<double>(dim);
  return fit;
}

}  // namespace

std::vector<float> shrink_metric(const std::vector<float>& moments, const std::vector<float>& prior,
                                 size_t dim, const Shrinkage& shrinkage) {
  const size_t block = dim * dim, heads = moments.size() / block;
  double all = 0;
  for (size_t h = 0; h < heads; ++h)
    all += mean_diagonal(moments, h, dim) / static_cast<double>(heads);
  std::vector<float> metric(moments.size());
  for (size_t h = 0; h < heads; ++h) {
    const double own = mean_diagonal(moments, h, dim), cost = std::max(own, kLeastCost * all);
    const double known = prior.empty() ? 0 : mean_diagonal(prior, h, dim);
    const double by_prior = known > 0 ? cost * shrinkage.prior / known : 0;
    const double ridge = cost * (shrinkage.ridge + (known > 0 ? 0 : shrinkage.prior));
    const double by_moments = own > 0 ? cost * (1 - shrinkage.prior) / own : 0;
    for (size_t i = h * block; i < (h + 1) * block; ++i) {
      const double towards = by_prior > 0 ? by_prior * prior[i] : 0;
      metric[i] = static_cast<float>(by_moments * moments[i] + towards);
    }
    for (size_t i = 0; i < dim; ++i) metric[h * block + i * (dim + 1)] += static_cast<float>(ridge);
  }
  return metric;
}

Result<double> held_out_loss(const std::vector<float>& metric, const std::vector<float>& moments,
                             size_t dim, int threads) {
  const size_t block = dim * dim, heads = metric.size() / block;
  std::vector<HeadFit> fits(heads);
  parallel_for(heads, threads, [&](size_t h, int) {
    fits[h] = fit_of(&metric[h * block], &moments[h * block], dim);
  });
  double cost = 0, log_det = 0;
  for (const HeadFit& fit : fits) {
    if (!fit.definite)
      return make_error(ErrorCode::internal, "metric of head {} is not positive definite",
                        &fit - fits.data());
    cost += fit.cost / static_cast<double>(heads);
    log_det += fit.log_det / static_cast<double>(heads);
  }
  return std::log(cost) + log_det;
}

Result<Shrinkage> choose_shrinkage(const std::array<std::vector<float>, 2>& halves,
                                   const std::vector<float>& prior, size_t dim, int threads) {
  Shrinkage best;
  for (const auto& half : halves)
    if (std::all_of(half.begin(), half.end(), [](float x) { return x == 0; })) return best;
  double least = HUGE_VAL;
  for (const double part : kPriors) {
    for (const double ridge : kRidges) {
      const Shrinkage tried{part, ridge};
      double loss = 0;
      for (size_t half = 0; half < 2; ++half) {
        KVCODEC_TRY(const double one, held_out_loss(shrink_metric(halves[half], prior, dim, tried),
                                                    halves[1 - half], dim, threads));
        loss += one;
      }
      if (loss < least) {
        least = loss;
        best = tried;
      }
    }
  }
  return best;
}

}  // namespace kvcodec::calibration
