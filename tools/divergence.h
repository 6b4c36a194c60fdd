// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvcodec/result.h"

namespace kvcodec::tools {

// Distributions over the next token, as a model's logits, one after each of several tokens.
class NextTokens {
 public:
  // invalid_argument where a logit is not finite.
  Status add(std::span<const float> logits);
  size_t size() const { return log_sums_.size(); }
  std::span<const float> logits(size_t i) const;
  // log of the sum of exp(logit), so that log p(t) = logit[t] - log_sum.
  double log_sum(size_t i) const { return log_sums_[i]; }
  // The most likely token; the lowest id among equals.
  int32_t top(size_t i) const { return tops_[i]; }
  bool operator==(const NextTokens&) const = default;

 private:
  size_t vocabulary_ = 0;
  std::vector<float> logits_;
  std::vector<double> log_sums_;
  std::vector<int32_t> tops_;
};

// How far predictions are from those of the exact cache, over the same tokens.
struct Divergence {
  double kl = 0;              // mean of KL(exact || method), nats a token
  double top1 = 0;            // share of tokens whose most likely successor is the same
  double log_prob = 0;        // sum of log p(target) under the method
  double exact_log_prob = 0;  // and under the exact cache
  bool top_is_target = true;  // at every token: greedy decoding gives the targets
  bool exact_top_is_target = true;
  bool identical = false;  // every logit, bit for bit
};

// Of entries [first, first + targets.size()); targets are the tokens that did follow.
// Requires them inside both, and both over one vocabulary.
Divergence compare_predictions(const NextTokens& exact, const NextTokens& method, size_t first,
                               std::span<const int32_t> targets);

}  // namespace kvcodec::tools
