// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "kvcodec/profile.h"

namespace kvcodec::testing_profile {

struct GroupRule {
  uint32_t layers = 1;
  double share = 1;  // of the channels that the basis spans
  bool blocks = false;
};

// A profile whose bases are random, and right in every other way: S M S^T = I.
class ProfileMaker {
 public:
  ProfileMaker(const KvShape& shape, const Rope& rope, uint32_t seed) : random_(seed) {
    fields_.model = "random";
    fields_.shape = shape;
    fields_.rope = rope;
    fields_.tiers = {ProfileTier{0.05, 0.5, 2, 0.001}, ProfileTier{0.2, 0.6, 1, 0.01},
                     ProfileTier{0.8, 0.6, 0.5, 0.05}};
  }

  ProfileFields make(const GroupRule& rule) {
    for (KvKind kind : kKvKinds) {
      if (fields_.shape.channels(kind) == 0) continue;
      for (uint32_t layer = 0; layer < fields_.shape.layers; layer += rule.layers) {
        const uint32_t layers = std::min(rule.layers, fields_.shape.layers - layer);
        fields_.groups.push_back(make_group(kind, layer, layers, rule));
      }
    }
    return fields_;
  }

 private:
  double normal() { return std::normal_distribution<double>()(random_); }

  ProfileGroup make_group(KvKind kind, uint32_t first_layer, uint32_t layers,
                          const GroupRule& rule) {
    const size_t dim = fields_.shape.head_dim(kind);
    const size_t channels = size_t{layers} * fields_.shape.channels(kind);
    ProfileGroup group;
    group.kind = kind;
    group.first_layer = first_layer;
    group.layers = layers;
    group.components = std::max(1u, static_cast<uint32_t>(rule.share * double(channels)));
    group.variance.assign(group.components, 1.0f);
    for (size_t c = 0; c < channels; ++c) group.mean.push_back(static_cast<float>(normal()));
    if (!rule.blocks) {
      for (size_t c = 0; c < channels; ++c)
        group.metric.push_back(static_cast<float>(std::exp(0.5 * normal())));
    } else {
      group.metric.assign(channels * dim, 0.0f);
      for (size_t c = 0; c < channels; ++c) {  // diagonally dominant, so positive definite
        for (size_t i = 0; i <= c % dim; ++i) {
          const double x = i == c % dim ? 2.0 : normal() / double(2 * dim);
          group.metric[c * dim + i] = static_cast<float>(x);
          group.metric[(c / dim * dim + i) * dim + c % dim] = static_cast<float>(x);
        }
      }
    }
    put_basis(group, dim);
    return group;
  }

  // M v.
  static std::vector<double> weigh(const ProfileGroup& group, size_t dim,
                                   const std::vector<double>& v) {
    std::vector<double> out(v.size());
    for (size_t c = 0; c < v.size(); ++c) {
      if (!group.block_metric()) {
        out[c] = group.metric[c] * v[c];
        continue;
      }
      for (size_t i = 0; i < dim; ++i) out[c] += group.metric[c * dim + i] * v[c / dim * dim + i];
    }
    return out;
  }

  // Gram-Schmidt under the metric.
  void put_basis(ProfileGroup& group, size_t dim) {
    const size_t channels = group.mean.size();
    std::vector<std::vector<double>> rows;
    const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
      double sum = 0;
      for (size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
      return sum;
    };
    for (uint32_t r = 0; r < group.components; ++r) {
      std::vector<double> v(channels);
      for (double& x : v) x = normal();
      for (int twice = 0; twice < 2; ++twice) {
        for (const auto& row : rows) {
          const double along = dot(weigh(group, dim, v), row);
          for (size_t c = 0; c < channels; ++c) v[c] -= along * row[c];
        }
      }
      const double length = std::sqrt(dot(weigh(group, dim, v), v));
      for (double& x : v) x /= length;
      rows.push_back(v);
      for (double x : v) group.basis.push_back(static_cast<float>(x));
    }
  }

  std::mt19937 random_;
  ProfileFields fields_;
};

inline Profile random_profile(const KvShape& shape, const Rope& rope, const GroupRule& rule,
                              uint32_t seed = 1) {
  return *Profile::parse(*serialise_profile(ProfileMaker(shape, rope, seed).make(rule)));
}

}  // namespace kvcodec::testing_profile
