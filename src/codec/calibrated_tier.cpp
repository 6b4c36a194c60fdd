// SPDX-License-Identifier: Apache-2.0
#include "codec/calibrated_tier.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "base/error.h"
#include "codec/panel_work.h"
#include "transform/code_choice.h"
#include "transform/component_quantise.h"
#include "transform/int8_quantise.h"

namespace kvcodec {
namespace {

using transform::Product;

double sum_of_squares(const float* row, size_t n) {
  double lanes[8] = {};
  for (size_t i = 0; i < n; ++i) lanes[i % 8] += double{row[i]} * row[i];
  return transform::add_lanes(lanes);
}

double sum_of_products(const float* a, const float* b, size_t n) {
  double lanes[8] = {};
  for (size_t i = 0; i < n; ++i) lanes[i % 8] += double{a[i]} * b[i];
  return transform::add_lanes(lanes);
}

// x M x, summed over the columns.
double metric_energy(const PanelWork& work, PanelMatrix& x) {
  double sum = 0;
  if (!work.group().block_metric()) {
    for (size_t c = 0; c < work.channels(); ++c)
      sum += double{work.group().metric[c]} * sum_of_squares(x.row(c), work.tokens());
    return sum;
  }
  PanelMatrix weighed = work.weigh(x);
  for (size_t c = 0; c < work.channels(); ++c)
    sum += sum_of_products(x.row(c), weighed.row(c), work.tokens());
  return std::max(sum, 0.0);
}

// Codes that are worth less than their bits come nearer to zero.
void lower_rows(const Components& components, uint32_t tokens, float step, uint32_t rows,
                std::vector<uint8_t>& samples) {
  for (uint32_t first = 0; first < rows; first += transform::kRateRows) {
    const uint32_t end = std::min<uint32_t>(first + transform::kRateRows, rows);
    transform::RateModel rates;
    rates.add(&samples[size_t{first} * tokens], size_t{end - first} * tokens);
    const auto bits = rates.bits();
    for (uint32_t row = first; row < end; ++row)
      transform::lower_codes(components.values.data() + row * components.row, tokens, step, bits,
                             &samples[size_t{row} * tokens]);
  }
}

// live_rows and deltas, which follow from the codes.
void finish_group(const Components& components, uint32_t tokens, uint32_t first_row, uint32_t rows,
                  std::vector<uint8_t>& samples, std::span<const format::Escape> escapes,
                  format::BasisGroup& group) {
  transform::CentroidSums centroids;
  std::vector<int32_t> codes(tokens);
  auto escape = escapes.begin();
  group.live_rows = 0;
  for (uint32_t row = 0; row < rows; ++row) {
    bool live = false;
    for (uint32_t t = 0; t < tokens; ++t)
      codes[t] = int{samples[size_t{row} * tokens + t]} - int{transform::kZeroSample};
    for (; escape != escapes.end() && escape->row == first_row + row; ++escape)
      codes[escape->token] = escape->code;
    for (uint32_t t = 0; t < tokens; ++t) live |= codes[t] != 0;
    if (!live) continue;
    group.live_rows = row + 1;
    centroids.add(components.values.data() + row * components.row, codes.data(), tokens,
                  group.step);
  }
  const std::array<float, 2> deltas = centroids.deltas();
  std::copy(deltas.begin(), deltas.end(), group.delta);
  samples.resize(size_t{group.live_rows} * tokens);
}

}  // namespace

std::vector<Panel> plan_panels(size_t groups, uint32_t tokens) {
  std::vector<Panel> panels;
  for (size_t group = 0; group < groups; ++group) {
    for (uint32_t t = 0; t < tokens; t += kPanelTokens)
      panels.push_back({group, {t, std::min(kPanelTokens, tokens - t)}});
  }
  return panels;
}

uint32_t audible_components(const ProfileGroup& group, double step) {
  const double least = std::pow(kSilentSpread * step, 2);
  uint32_t count = group.components;
  while (count > 1 && group.variance[count - 1] < least) --count;
  return count;
}

Status analyse_panel(const CalibratedContext& context, const Panel& panel, const std::byte* rows,
                     uint32_t first, Components& out) {
  const PanelWork work(context, panel);
  PanelMatrix x(work.channels(), work.tokens());
  work.to_matrix(rows, x);
  KVCODEC_CHECK(work.check_finite(x, ""));
  work.zero_sinks(x);
  work.turn(x, transform::unrotate_pairs);
  KVCODEC_CHECK(work.check_finite(x, " after its rotation was undone"));
  work.centre(x);
  const PanelMatrix z = work.weigh(std::move(x));
  Product product;
  product.rows = out.count - first;
  product.columns = work.tokens();
  product.depth = work.channels();
  product.a = work.group().basis.data() + first * work.channels();
  product.a_row = work.channels();
  product.a_depth = 1;
  product.b = z.data();
  product.b_row = z.row_size();
  product.out = out.values.data() + first * out.row + panel.tokens.first;
  product.out_row = out.row;
  transform::best_product().multiply(product);
  return ok_status();
}

Error component_too_large(const format::BasisGroup& group, uint32_t row) {
  return make_error(ErrorCode::invalid_argument,
                    "{} layers {} to {}: component {} has values of more than {} steps: the "
                    "cache is not one of the profile's model",
                    kv_kind_name(group.kind), group.first_layer,
                    group.first_layer + group.layers - 1, row, transform::kMaxComponentCode);
}

Status quantise_components(const ProfileTier& tier, const Components& components, uint32_t tokens,
                           uint32_t first_row, format::BasisGroup& group,
                           std::vector<uint8_t>& samples, std::vector<format::Escape>& escapes) {
  const auto step = static_cast<float>(tier.step);
  const auto dead_zone = static_cast<float>(tier.dead_zone);
  std::vector<int32_t> codes(tokens);
  samples.resize(size_t{components.count} * tokens);
  escapes.clear();
  uint32_t coded_rows = 0;
  for (uint32_t row = 0; row < components.count; ++row) {
    const float* y = components.values.data() + row * components.row;
    const int32_t peak = transform::quantise_components(y, tokens, step, dead_zone, codes.data());
    if (peak == transform::kMaxComponentCode) {
      return component_too_large(group, row);
    }
    uint8_t* out = samples.data() + size_t{row} * tokens;
    if (peak == 0) {
      std::fill_n(out, tokens, transform::kZeroSample);
      continue;
    }
    coded_rows = row + 1;
    for (uint32_t t = 0; t < tokens; ++t) {
      const bool escape = std::abs(codes[t]) > transform::kMaxCode;
      if (escape) escapes.push_back({group.kind, first_row + row, t, codes[t]});
      out[t] =
          static_cast<uint8_t>(escape ? transform::kZeroSample : codes[t] + transform::kZeroSample);
    }
  }
  lower_rows(components, tokens, step, coded_rows, samples);
  group.step = step;
  finish_group(components, tokens, first_row, coded_rows, samples, escapes, group);
  return ok_status();
}

void restore_panel(const CalibratedContext& context, const Panel& panel, const LiveSamples& samples,
                   std::span<const format::Escape> escapes, std::byte* rows) {
  const PanelWork work(context, panel);
  const format::BasisGroup& group = context.header.groups[panel.group];
  const uint32_t first_row = context.plans[panel.group].rows.first_row;
  const uint32_t first = panel.tokens.first, n = panel.tokens.count;
  std::array<float, 256> value_of;
  for (int32_t s = 0; s < 256; ++s)
    value_of[s] = transform::component_of_code(s - transform::kZeroSample, group.step, group.delta);

  // Only rows with a code here take part: what is left out would add zero.
  PanelMatrix y(group.live_rows, n);
  std::vector<uint32_t> live, nonzero;
  auto escape = std::lower_bound(
      escapes.begin(), escapes.end(), std::tuple(group.kind, first_row),
      [](const format::Escape& e, const auto& place) { return std::tie(e.kind, e.row) < place; });
  for (uint32_t row = 0; row < group.live_rows; ++row) {
    const uint8_t* in = samples.at(row) + first;
    float* out = y.row(live.size());
    uint32_t codes = 0;
    for (uint32_t t = 0; t < n; ++t) codes += in[t] != transform::kZeroSample;
    for (uint32_t t = 0; t < n; ++t) out[t] = value_of[in[t]];
    for (; escape != escapes.end() && escape->kind == group.kind && escape->row == first_row + row;
         ++escape) {
      if (escape->token - first >= n) continue;
      out[escape->token - first] =
          transform::component_of_code(escape->code, group.step, group.delta);
      ++codes;
    }
    if (codes == 0) continue;
    live.push_back(row);
    nonzero.push_back(codes);
  }
  PanelMatrix x(work.channels(), n);
  Product product;
  product.rows = work.channels();
  product.columns = n;
  product.depth = live.size();
  product.start = work.group().mean.data();
  product.a = work.group().basis.data();
  product.a_row = 1;
  product.a_depth = work.channels();
  product.index = live.data();
  product.b = y.data();
  product.b_row = y.row_size();
  product.out = x.data();
  product.out_row = x.row_size();
  // Components come by descending variance: dense rows first, then ever sparser ones.
  const size_t dense = transform::dense_rows(nonzero, n);
  product.depth = dense;
  if (dense > 0 || live.empty()) transform::best_product().multiply(product);
  if (dense < live.size()) {
    product.resume = dense > 0;
    product.depth = live.size() - dense;
    product.index = live.data() + dense;
    product.b = y.row(dense);
    transform::sparse_product().multiply(product);
  }
  work.turn(x, transform::rotate_pairs);
  work.to_elements(x, rows);
  work.put_sinks(rows);
}

PanelDistortion measure_panel(const CalibratedContext& context, const Panel& panel,
                              const std::byte* exact, const std::byte* restored) {
  const PanelWork work(context, panel);
  PanelMatrix x(work.channels(), work.tokens()), error(work.channels(), work.tokens());
  work.to_matrix(exact, x);
  work.to_matrix(restored, error);
  work.zero_sinks(x);
  work.zero_sinks(error);
  for (size_t c = 0; c < work.channels(); ++c)
    for (uint32_t t = 0; t < work.tokens(); ++t) error.row(c)[t] = x.row(c)[t] - error.row(c)[t];
  work.turn(x, transform::unrotate_pairs);
  work.turn(error, transform::unrotate_pairs);
  work.centre(x);
  return {metric_energy(work, error), metric_energy(work, x)};
}

}  // namespace kvcodec
