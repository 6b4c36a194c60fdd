// SPDX-License-Identifier: Apache-2.0
#include "divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kvcodec::tools {

Status NextTokens::add(std::span<const float> logits) {
  const auto bad =
      std::find_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
  if (logits.empty() || bad != logits.end()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("logits of token {}: expected finite values, found {} at entry {}",
                             size(), logits.empty() ? 0.0F : *bad, bad - logits.begin())};
  }
  vocabulary_ = logits.size();
  const auto best = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits) sum += std::exp(double{x} - double{*best});
  logits_.insert(logits_.end(), logits.begin(), logits.end());
  log_sums_.push_back(double{*best} + std::log(sum));
  tops_.push_back(static_cast<int32_t>(best - logits.begin()));
  return ok_status();
}

std::span<const float> NextTokens::logits(size_t i) const {
  return std::span(logits_).subspan(i * vocabulary_, vocabulary_);
}

Divergence compare_predictions(const NextTokens& exact, const NextTokens& method, size_t first,
                               std::span<const int32_t> targets) {
  Divergence out;
  size_t same = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    const size_t at = first + i;
    const auto p = exact.logits(at), q = method.logits(at);
    const double p_sum = exact.log_sum(at), q_sum = method.log_sum(at);
    double kl = 0;
    for (size_t t = 0; t < p.size(); ++t) {
      const double log_p = double{p[t]} - p_sum;
      kl += std::exp(log_p) * (log_p - (double{q[t]} - q_sum));
    }
    out.kl += kl;
    same += exact.top(at) == method.top(at);
    const auto target = static_cast<size_t>(targets[i]);
    out.log_prob += double{q[target]} - q_sum;
    out.exact_log_prob += double{p[target]} - p_sum;
    out.top_is_target &= method.top(at) == targets[i];
    out.exact_top_is_target &= exact.top(at) == targets[i];
  }
  const auto count = static_cast<double>(targets.size());
  out.kl /= count;
  out.top1 = static_cast<double>(same) / count;
  out.identical = exact == method;
  return out;
}

}  // namespace kvcodec::tools
