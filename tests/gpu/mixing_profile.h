// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kvcodec/profile.h"

namespace kvcodec {

// A profile with a basis that mixes all channels of a group.
// block_metric: a matrix a head in place of a weight a channel. noise: what the tiers expect, 0 for
// no budget.
inline Profile mixing_profile(const KvShape& shape, const Rope& rope, uint32_t group_layers,
                              bool block_metric = false, float noise = 0) {
  ProfileFields fields;
  fields.model = "test";
  fields.shape = shape;
  fields.rope = rope;
  fields.tiers = {ProfileTier{0.05, 0.5, 0, 0}, {0.3, 0.6, 0, 0}, {1.0, 0.6, 0, 0}};
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (const KvKind kind : kKvKinds) {
    for (uint32_t layer = 0; layer < shape.layers; layer += group_layers) {
      ProfileGroup group;
      group.kind = kind;
      group.first_layer = layer;
      group.layers = std::min(group_layers, shape.layers - layer);
      const uint32_t c = group.layers * shape.channels(kind);
      group.components = c - 3;
      group.mean.resize(c);
      for (float& mean : group.mean) mean = normal(random);
      std::fill(std::begin(group.expected_noise), std::end(group.expected_noise), noise);
      // Householder reflection: orthonormal rows without a matrix library.
      std::vector<float> v(c);
      float norm = 0;
      for (float& x : v) {
        x = normal(random);
        norm += x * x;
      }
      std::vector<float> h(size_t{group.components} * c);
      for (uint32_t r = 0; r < group.components; ++r)
        for (uint32_t i = 0; i < c; ++i)
          h[size_t{r} * c + i] = (r == i ? 1.0f : 0.0f) - 2 * v[r] * v[i] / norm;
      // Rows must have length 1 under the metric M: S = H M^(-1/2).
      const uint32_t dim = shape.head_dim(kind);
      std::vector<float> u(dim);
      float square = 0;
      for (float& x : u) {
        x = normal(random);
        square += x * x;
      }
      constexpr float kShare = 0.02f;
      const float shrink = (1 / std::sqrt(1 + kShare * square) - 1) / square;
      for (uint32_t i = 0; i < c; ++i) {
        if (!block_metric) {
          group.metric.push_back(1.0f + 0.5f * static_cast<float>(i % 3));
          continue;
        }
        for (uint32_t j = 0; j < dim; ++j)
          group.metric.push_back((i % dim == j ? 1.0f : 0.0f) + kShare * u[i % dim] * u[j]);
      }
      for (uint32_t r = 0; r < group.components; ++r) {
        float* row = &h[size_t{r} * c];
        for (uint32_t block = 0; block < c; block += dim) {
          float along = 0;
          for (uint32_t i = 0; i < dim; ++i) along += row[block + i] * u[i];
          for (uint32_t i = 0; i < dim; ++i) {
            row[block + i] = block_metric ? row[block + i] + shrink * along * u[i]
                                          : row[block + i] / std::sqrt(group.metric[block + i]);
          }
        }
      }
      group.basis = std::move(h);
      group.variance.assign(group.components, 1.0f);
      fields.groups.push_back(std::move(group));
    }
  }
  const auto bytes = serialise_profile(fields);
  EXPECT_TRUE(bytes.ok()) << (bytes.ok() ? "" : bytes.error().message);
  auto profile = Profile::parse(*bytes);
  EXPECT_TRUE(profile.ok()) << (profile.ok() ? "" : profile.error().message);
  return *std::move(profile);
}

}  // namespace kvcodec
