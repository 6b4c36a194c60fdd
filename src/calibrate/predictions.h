// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kvcodec/result.h"

namespace kvcodec::calibration {

// What a model predicts after each token of a continuation from its exact cache, and how far other
// predictions are from it.
class Predictions {
 public:
  void add(std::span<const float> logits);
  size_t size() const { return log_sums_.size(); }
  // KL(this || logits) of entry `index`, nats; logits of the same vocabulary.
  double divergence(size_t index, std::span<const float> logits) const;

 private:
  std::vector<std::vector<float>> logits_;
  std::vector<double> log_sums_;
};

}  // namespace kvcodec::calibration
