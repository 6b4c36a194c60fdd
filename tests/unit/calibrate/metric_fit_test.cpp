// SPDX-License-Identifier: Apache-2.0
#include "calibrate/metric_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "unit/engines/code_of.h"

namespace kvcodec::calibration {
namespace {

constexpr size_t kHeads = 5, kDim = 8;

// Costs of heads that differ, each with directions of its own.
std::vector<float> true_costs() {
  std::vector<float> costs(kHeads * kDim * kDim);
  for (size_t h = 0; h < kHeads; ++h) {
    for (size_t i = 0; i < kDim; ++i) {
      for (size_t j = 0; j < kDim; ++j) {
        const double decay = 0.3 + 0.1 * static_cast<double>(h);
        costs[(h * kDim + i) * kDim + j] = static_cast<float>(
            static_cast<double>(h + 1) * std::pow(decay, std::abs(double(i) - double(j))) *
            std::exp(-0.15 * static_cast<double>((i + h) % kDim + (j + h) % kDim)));
      }
    }
  }
  return costs;
}

// Second moments of `count` normal vectors of these costs, by Cholesky.
std::vector<float> sampled(const std::vector<float>& costs, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<float> out(costs.size());
  for (size_t h = 0; h < kHeads; ++h) {
    double l[kDim][kDim] = {};
    const float* c = &costs[h * kDim * kDim];
    for (size_t i = 0; i < kDim; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        double sum = c[i * kDim + j];
        for (size_t k = 0; k < j; ++k) sum -= l[i][k] * l[j][k];
        l[i][j] = i == j ? std::sqrt(sum) : sum / l[j][j];
      }
    }
    for (size_t n = 0; n < count; ++n) {
      double z[kDim], x[kDim] = {};
      for (double& v : z) v = normal(random);
      for (size_t i = 0; i < kDim; ++i)
        for (size_t j = 0; j <= i; ++j) x[i] += l[i][j] * z[j];
      for (size_t i = 0; i < kDim; ++i)
        for (size_t j = 0; j < kDim; ++j)
          out[(h * kDim + i) * kDim + j] += static_cast<float>(x[i] * x[j] / double(count));
    }
  }
  return out;
}

double loss(const std::vector<float>& metric, const std::vector<float>& moments) {
  const auto result = held_out_loss(metric, moments, kDim, 1);
  EXPECT_TRUE(result.ok());
  return result.ok() ? *result : HUGE_VAL;
}

TEST(MetricFit, NothingPredictsCostsBetterThanThey) {
  const std::vector<float> costs = true_costs();
  const double best = loss(costs, costs);
  // The definition: the mean over heads of tr(C C^-1) / dim is 1.
  std::vector<float> twice = costs;
  for (float& x : twice) x *= 2;
  EXPECT_NEAR(loss(twice, costs), best, 1e-5);  // a factor of all is no matter
  for (uint32_t seed = 0; seed < 5; ++seed) EXPECT_GT(loss(sampled(costs, 30, seed), costs), best);
  for (const Shrinkage& s : {Shrinkage{0, 0.05}, Shrinkage{0, 0.5}, Shrinkage{1, 0.2}})
    EXPECT_GT(loss(shrink_metric(costs, {}, kDim, s), costs), best);
}

// What calibration on few texts got wrong: moments of few gradients are believed as they are.
TEST(MetricFit, FewGradientsAreBelievedLessThanMany) {
  const std::vector<float> costs = true_costs();
  const auto chosen = [&](size_t count, const std::vector<float>& prior) {
    const auto s =
        choose_shrinkage({sampled(costs, count, 1), sampled(costs, count, 2)}, prior, kDim, 1);
    EXPECT_TRUE(s.ok());
    return *s;
  };
  const Shrinkage few = chosen(10, costs), many = chosen(20000, {});
  EXPECT_GE(few.prior, 0.6);  // the prior is the truth
  EXPECT_EQ(many.prior, 0);
  EXPECT_LE(many.ridge, 0.05);
  for (uint32_t seed = 3; seed < 6; ++seed) {
    const std::vector<float> moments = sampled(costs, 10, seed);
    const Shrinkage s = chosen(10, {});
    EXPECT_LT(loss(shrink_metric(moments, {}, kDim, s), costs),
              loss(shrink_metric(moments, {}, kDim, {0, 0.02}), costs))
        << seed;
    EXPECT_LT(loss(shrink_metric(moments, costs, kDim, few), costs),
              loss(shrink_metric(moments, {}, kDim, s), costs))
        << seed;
  }
  // A prior that has nothing to do with the costs is not believed for many gradients.
  std::vector<float> wrong(costs.rbegin(), costs.rend());
  const auto s =
      choose_shrinkage({sampled(costs, 20000, 1), sampled(costs, 20000, 2)}, wrong, kDim, 1);
  ASSERT_TRUE(s.ok());
  EXPECT_LE(s->prior, 0.2);
}

TEST(MetricFit, MeanCostsOfHeadsStay) {
  const std::vector<float> costs = true_costs();
  std::vector<float> prior(costs.rbegin(), costs.rend());
  const std::vector<float> metric = shrink_metric(costs, prior, kDim, {0.7, 0.25});
  for (size_t h = 0; h < kHeads; ++h) {
    double before = 0, after = 0;
    for (size_t i = 0; i < kDim; ++i) {
      before += costs[(h * kDim + i) * kDim + i];
      after += metric[(h * kDim + i) * kDim + i];
    }
    EXPECT_NEAR(after, 1.25 * before, 1e-4 * before);
  }
}

TEST(MetricFit, HeadsWithoutGradientsOrPriorStayDefinite) {
  std::vector<float> costs = true_costs(), prior = costs;
  std::fill_n(costs.begin(), kDim * kDim, 0.0F);
  std::fill_n(prior.begin() + kDim * kDim, kDim * kDim, 0.0F);
  for (const auto& p : {prior, std::vector<float>{}}) {
    const std::vector<float> metric = shrink_metric(costs, p, kDim, {1, 0.02});
    EXPECT_TRUE(std::isfinite(loss(metric, true_costs())));
  }
  const auto s = choose_shrinkage({costs, std::vector<float>(costs.size())}, prior, kDim, 1);
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->prior, Shrinkage{}.prior);
  EXPECT_EQ(code_of(held_out_loss(std::vector<float>(costs.size()), costs, kDim, 1)),
            ErrorCode::internal);
}

}  // namespace
}  // namespace kvcodec::calibration
