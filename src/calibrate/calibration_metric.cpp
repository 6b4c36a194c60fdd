// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "calibrate/calibration_run.h"
#include "calibrate/metric_fit.h"

// What noise costs in each direction, and the bases that follow.
namespace kvcodec::calibration {

std::vector<double> CalibrationRun::spread(KvKind kind) const {
  const size_t dim = shape_.head_dim(kind);
  std::vector<double> result;
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    if (plan_.groups[g].kind != kind) continue;
    const Moments& m = state_.moments[g];
    const auto tokens = static_cast<double>(m.tokens());
    for (size_t c = 0; c < m.channels(); ++c) {
      const double mean = m.sum()[c] / tokens;
      const double variance = m.products()[c * m.channels() + c] / tokens - mean * mean;
      if (c % dim == 0) result.push_back(0);
      result.back() += std::max(variance, 0.0) / static_cast<double>(dim);
    }
  }
  return result;
}

// Second moments of the gradients, shrunk. What is not seen in gradients of a few texts is known of
// the weights: keys cost as queries read them, values as the output projection writes them.
Result<std::vector<float>> CalibrationRun::gradient_metric(KvKind kind) const {
  const auto index = static_cast<size_t>(kind);
  const size_t dim = shape_.head_dim(kind);
  std::array<std::vector<float>, 2> halves = {state_.costs[index].sums(),
                                              state_.costs[2 + index].sums()};
  std::vector<float> prior = state_.queries.sums();
  if (kind == KvKind::value) {
    KVCODEC_TRY(const HeadMoments moments, output_moments(*model_->weights(), shape_));
    prior = moments.sums();
  }
  KVCODEC_TRY(const Shrinkage shrinkage, choose_shrinkage(halves, prior, dim, options_.threads));
  note(fmt::format("cost of noise in {}: {:.0f} % from the weights, ridge of {}",
                   kv_kind_name(kind), 100 * shrinkage.prior, shrinkage.ridge));
  const double scale =
      1 / static_cast<double>(state_.costs[index].tokens() + state_.costs[2 + index].tokens());
  std::vector<float>& sums = halves[0];
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = static_cast<float>((double{sums[i]} + halves[1][i]) * scale);
  return shrink_metric(sums, prior, dim, shrinkage);
}

Result<std::vector<std::vector<float>>> CalibrationRun::metrics() const {
  std::vector<std::vector<float>> result(2);
  for (KvKind kind : kKvKinds) {
    const auto index = static_cast<size_t>(kind);
    const size_t dim = shape_.head_dim(kind);
    std::vector<float>& metric = result[index];
    if (state_.gradients) {
      KVCODEC_TRY(metric, gradient_metric(kind));
      continue;
    }
    const std::vector<double> spreads = spread(kind);
    for (size_t head = 0; head < spreads.size(); ++head) {
      const bool known = !state_.injected.costs[index].empty();
      // Without a model noise costs what it is of the spread of its layer.
      double layer_spread = 0;
      for (size_t h = 0; h < shape_.kv_heads; ++h)
        layer_spread += spreads[head / shape_.kv_heads * shape_.kv_heads + h] / shape_.kv_heads;
      const double cost = known              ? state_.injected.costs[index][head]
                          : layer_spread > 0 ? 1 / layer_spread
                                             : 0;
      metric.insert(metric.end(), dim, static_cast<float>(cost));
    }
  }
  return result;
}

Status CalibrationRun::fit() {
  fields_.shape = shape_;
  fields_.rope = rope_;
  KVCODEC_TRY(std::vector<std::vector<float>> all, metrics());
  // One factor for all, so that a step is a number around 1: the geometric mean of the diagonals.
  double logs = 0, count = 0;
  for (KvKind kind : kKvKinds) {
    const auto& metric = all[static_cast<size_t>(kind)];
    const size_t dim = shape_.head_dim(kind), stride = state_.gradients ? dim : 1;
    for (size_t i = 0; i < metric.size(); ++i) {
      const bool diagonal = stride == 1 || i / dim % dim == i % dim;
      if (!diagonal || !(metric[i] > 0)) continue;
      logs += std::log(double{metric[i]});
      count += 1;
    }
  }
  const auto scale = static_cast<float>(state_.gradients || !state_.injected.costs[0].empty()
                                            ? std::exp(-logs / std::max(count, 1.0))
                                            : 1);
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    progress("fit", g, plan_.groups.size());
    KVCODEC_CHECK(check_stop());
    const GroupPlace& place = plan_.groups[g];
    const size_t dim = shape_.head_dim(place.kind), block = state_.gradients ? dim : 1;
    const size_t channels = state_.moments[g].channels();
    const auto& kind = all[static_cast<size_t>(place.kind)];
    const size_t first = size_t{place.first_layer} * shape_.channels(place.kind) * block;
    std::vector<float> metric(kind.begin() + static_cast<std::ptrdiff_t>(first),
                              kind.begin() + static_cast<std::ptrdiff_t>(first + channels * block));
    for (float& x : metric) x *= scale;
    KVCODEC_TRY(ProfileGroup group, fit_group(state_.moments[g], place, std::move(metric), block));
    fields_.groups.push_back(std::move(group));
  }
  progress("fit", plan_.groups.size(), plan_.groups.size());
  end_stage("fit");
  return ok_status();
}

}  // namespace kvcodec::calibration
