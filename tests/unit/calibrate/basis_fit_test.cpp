// SPDX-License-Identifier: Apache-2.0
#include "calibrate/basis_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "calibrate/eigen.h"
#include "calibrate/kv_rows.h"
#include "unit/codec/codec_cases.h"
#include "unit/engines/code_of.h"

namespace kvcodec::calibration {
namespace {

// Un-rotated keys of one layer of a real cache: [tokens][channels].
struct RealRows {
  std::vector<float> rows;
  size_t tokens = 0, channels = 0;
};
RealRows real_keys(uint32_t layer) {
  const testing_codec::Cache cache = testing_codec::real_cache();
  const KvShape& shape = cache.geometry.shape;
  RealRows real;
  real.tokens = cache.geometry.tokens - 4;
  real.channels = shape.channels(KvKind::key);
  real.rows = *unrotated_rows(cache.source(), KvKind::key, layer, 1, {4, cache.geometry.tokens - 4},
                              testing_codec::real_rope());
  return real;
}

Moments moments_of(const RealRows& real, size_t batch) {
  Moments moments(real.channels);
  for (size_t t = 0; t < real.tokens; t += batch)
    moments.add(&real.rows[t * real.channels], std::min(batch, real.tokens - t), real.channels);
  return moments;
}

// Some symmetric positive definite blocks, far from multiples of the identity.
std::vector<float> some_blocks(size_t count, size_t dim) {
  std::vector<float> metric(count * dim * dim);
  for (size_t at = 0; at < metric.size(); ++at) {
    const auto block = static_cast<double>(at / (dim * dim));
    const auto i = static_cast<int>(at / dim % dim), j = static_cast<int>(at % dim);
    metric[at] = static_cast<float>((block + 1) * std::exp(-0.1 * std::abs(i - j)) *
                                    std::sqrt((1.0 + i % 7) * (1.0 + j % 7)));
  }
  return metric;
}

// s M x of a row of the basis.
double under_metric(const ProfileGroup& group, const float* s, const float* x, size_t dim) {
  double sum = 0;
  for (size_t c = 0; c < group.mean.size(); ++c)
    for (size_t i = 0; i < dim; ++i)
      sum += double{s[c]} * group.metric[c * dim + i] * x[c / dim * dim + i];
  return sum;
}

TEST(Moments, OfRealKeysAreThoseOfTheDefinition) {
  const RealRows real = real_keys(0);
  const Moments moments = moments_of(real, 17);
  ASSERT_EQ(moments.tokens(), real.tokens);
  const std::vector<float> mean = moments.mean(), covariance = moments.covariance();
  const auto count = static_cast<double>(real.tokens);
  for (size_t i = 0; i < real.channels; i += 7) {
    for (size_t j = 0; j < real.channels; j += 5) {
      double a = 0, b = 0, ab = 0, aa = 0, bb = 0;
      for (size_t t = 0; t < real.tokens; ++t) {
        const double x = real.rows[t * real.channels + i], y = real.rows[t * real.channels + j];
        a += x / count, b += y / count;
      }
      for (size_t t = 0; t < real.tokens; ++t) {
        const double x = real.rows[t * real.channels + i] - a;
        const double y = real.rows[t * real.channels + j] - b;
        ab += x * y / count, aa += x * x / count, bb += y * y / count;
      }
      EXPECT_NEAR(covariance[i * real.channels + j], ab, 1e-4 * std::sqrt(aa * bb))
          << i << " " << j;
      EXPECT_NEAR(mean[j], b, 1e-4 * (std::abs(b) + std::sqrt(bb)));
    }
  }
}

TEST(Moments, GoOnFromAStateAsIfNeverStopped) {
  const RealRows real = real_keys(1);
  const size_t half = real.tokens / 2;
  Moments whole(real.channels), before(real.channels), after(real.channels);
  whole.add(real.rows.data(), half, real.channels);
  before.add(real.rows.data(), half, real.channels);
  after.restore({before.tokens(), before.shift(), before.sum(), before.products()});
  const float* rest = &real.rows[half * real.channels];
  whole.add(rest, real.tokens - half, real.channels);
  after.add(rest, real.tokens - half, real.channels);
  EXPECT_EQ(whole.covariance(), after.covariance());
  EXPECT_EQ(whole.mean(), after.mean());
}

TEST(Eigen, ReconstructsACovarianceInDescendingOrder) {
  const RealRows real = real_keys(1);
  const size_t n = real.channels;
  const std::vector<float> covariance = moments_of(real, 64).covariance();
  const auto eigen = symmetric_eigen(covariance, n);
  ASSERT_TRUE(eigen.ok()) << eigen.error().message;
  for (size_t i = 1; i < n; ++i) EXPECT_GE(eigen->values[i - 1], eigen->values[i]);
  for (size_t i = 0; i < n; i += 11) {
    for (size_t j = 0; j < n; j += 13) {
      double sum = 0;
      for (size_t k = 0; k < n; ++k)
        sum += double{eigen->values[k]} * eigen->vectors[k * n + i] * eigen->vectors[k * n + j];
      EXPECT_NEAR(sum, covariance[i * n + j], 2e-5 * eigen->values[0]);
    }
  }
}

TEST(Eigen, RefusesWhatIsNotFiniteOrZero) {
  EXPECT_EQ(code_of(symmetric_eigen({1, 0, std::nanf(""), 1}, 2)), ErrorCode::internal);
  EXPECT_EQ(code_of(symmetric_roots({0, 0, 0, 0}, 2, 1e-4)), ErrorCode::internal);
}

TEST(BasisFit, RowsAreOrthonormalAndComponentsUncorrelatedUnderTheMetric) {
  const RealRows real = real_keys(1);
  const KvShape shape = testing_codec::real_cache().geometry.shape;
  const size_t dim = shape.key_dim, n = real.channels;
  const auto group = fit_group(moments_of(real, real.tokens), {KvKind::key, 1, 1},
                               some_blocks(shape.kv_heads, dim), dim);
  ASSERT_TRUE(group.ok()) << group.error().message;
  for (size_t a = 0; a < n; a += 9)
    for (size_t b = 0; b < n; b += 9)
      EXPECT_NEAR(under_metric(*group, &group->basis[a * n], &group->basis[b * n], dim),
                  a == b ? 1 : 0, 2e-3);
  // The variances are those of the coefficients of the very rows that were fitted.
  std::vector<float> centred(n);
  for (size_t a : {size_t{0}, size_t{5}, size_t{20}}) {
    double sum = 0;
    for (size_t t = 0; t < real.tokens; ++t) {
      for (size_t c = 0; c < n; ++c) centred[c] = real.rows[t * n + c] - group->mean[c];
      const double y = under_metric(*group, &group->basis[a * n], centred.data(), dim);
      sum += y * y / static_cast<double>(real.tokens);
    }
    EXPECT_NEAR(sum, group->variance[a], 2e-3 * group->variance[0] + 1e-2 * group->variance[a]);
  }
}

TEST(BasisFit, ChannelsThatNeverVaryEndInSilentComponents) {
  RealRows real = real_keys(0);
  for (size_t t = 0; t < real.tokens; ++t)
    for (size_t c = 0; c < 5; ++c) real.rows[t * real.channels + c * 3] = 2.5F;
  auto group =
      fit_group(moments_of(real, 64), {KvKind::key, 0, 1}, std::vector<float>(real.channels, 1), 1);
  ASSERT_TRUE(group.ok()) << group.error().message;
  for (size_t i = real.channels - 5; i < real.channels; ++i)
    EXPECT_LE(group->variance[i], 1e-5 * group->variance[0]);
  const float least = group->variance[10];
  truncate_components(*group, least);
  EXPECT_EQ(group->components, 11u);
  EXPECT_EQ(group->basis.size(), 11 * real.channels);
  truncate_components(*group, 1e30);
  EXPECT_EQ(group->components, 1u);
}

TEST(BasisFit, RefusesSizesThatDoNotFit) {
  const RealRows real = real_keys(0);
  const Moments moments = moments_of(real, 64);
  const GroupPlace place{KvKind::key, 0, 1};
  const size_t n = real.channels;
  EXPECT_EQ(code_of(fit_group(Moments(n), place, std::vector<float>(n, 1), 1)),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(fit_group(moments, place, std::vector<float>(n - 1, 1), 1)),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(fit_group(moments, place, std::vector<float>(n, 0), 1)),
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace kvcodec::calibration
