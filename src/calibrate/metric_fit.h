// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "kvcodec/result.h"

namespace kvcodec::calibration {

// The cost of noise by head is a second moment of gradients, and a few dozen texts say little of
// its weak directions: those of values from one half of the texts and from the other point almost
// anywhere. So it is shrunk towards what the weights themselves say (`prior`) and towards a
// multiple of the identity, by as much as predicts other texts best. Metrics, moments and priors
// are [heads][dim][dim], symmetric and positive semidefinite.
struct Shrinkage {
  double prior = 0.6;  // part of a head's mean cost that the prior says the directions of
  double ridge = 0.2;  // added to the diagonal, as a part of the head's mean cost
};

// Of each head: t ((1 - prior) moments / trace + prior * prior / its trace + ridge I) where t is
// the mean of the moments' diagonal. A head that costs nothing gets a small part of what others
// do. Without a prior (empty, or zero of a head) the identity takes its place.
std::vector<float> shrink_metric(const std::vector<float>& moments, const std::vector<float>& prior,
                                 size_t dim, const Shrinkage& shrinkage);

// How badly a metric fits moments it has not seen, in nats of KL at an equal rate: noise of one
// size under the metric costs tr(moments metric^-1), and the bits it takes follow the metric's
// determinant. That is Stein's loss, the likelihood of gradients as normal vectors.
// internal where the metric is not positive definite.
Result<double> held_out_loss(const std::vector<float>& metric, const std::vector<float>& moments,
                             size_t dim, int threads);

// What predicts each half from the other best; the default where a half is all zero.
Result<Shrinkage> choose_shrinkage(const std::array<std::vector<float>, 2>& halves,
                                   const std::vector<float>& prior, size_t dim, int threads);

}  // namespace kvcodec::calibration
