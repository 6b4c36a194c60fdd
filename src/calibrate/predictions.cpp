// SPDX-License-Identifier: Apache-2.0
#include "calibrate/predictions.h"

#include <algorithm>
#include <cmath>

namespace kvcodec::calibration {
namespace {

double log_sum(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits) sum += std::exp(x - top);
  return top + std::log(sum);
}

}  // namespace

void Predictions::add(std::span<const float> logits) {
  logits_.emplace_back(logits.begin(), logits.end());
  log_sums_.push_back(log_sum(logits));
}

double Predictions::divergence(size_t index, std::span<const float> logits) const {
  const std::vector<float>& p = logits_[index];
  const double p_sum = log_sums_[index], q_sum = log_sum(logits);
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = p[i] - p_sum;
    kl += std::exp(log_p) * (log_p - (logits[i] - q_sum));
  }
  return kl;
}

}  // namespace kvcodec::calibration
