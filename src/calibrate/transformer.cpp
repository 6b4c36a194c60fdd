// SPDX-License-Identifier: Apache-2.0
#include "calibrate/transformer.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "calibrate/transformer_math.h"

namespace kvcodec::calibration {
namespace {

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

void add_bias(std::vector<float>& rows, const std::vector<float>& bias) {
  if (bias.empty()) return;
  for (size_t i = 0; i < rows.size(); ++i) rows[i] += bias[i % bias.size()];
}

// gate becomes silu(gate) * up.
void gate_units(const std::vector<float>& gate, const std::vector<float>& up,
                std::vector<float>& out) {
  out.resize(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) out[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

}  // namespace

void Transformer::rotate(std::vector<float>& rows, size_t count, uint32_t heads, uint32_t first,
                         bool backwards) const {
  const transform::RotationTable turns(config_.rope, first, static_cast<uint32_t>(count));
  const size_t dim = config_.head_dim;
  for (uint32_t pair = 0; pair < turns.pairs(); ++pair) {
    const float *cosines = turns.cosines(pair), *sines = turns.sines(pair);
    for (size_t t = 0; t < count; ++t) {
      const float c = cosines[t], s = backwards ? -sines[t] : sines[t];
      for (size_t h = 0; h < heads; ++h) {
        float* head = &rows[(t * heads + h) * dim];
        const float x = head[turns.first_dim(pair)], y = head[turns.second_dim(pair)];
        head[turns.first_dim(pair)] = x * c - y * s;
        head[turns.second_dim(pair)] = x * s + y * c;
      }
    }
  }
}

Status Transformer::layer_forward(uint32_t index, const Cache& cache, std::vector<float>& x) {
  KVCODEC_TRY(const DecoderLayer w, weights_.layer(index));
  Activations& a = layers_[index];
  const size_t width = config_.width, n = tokens_;
  a.input = x;
  const std::vector<float> h = rms_norm(x, w.attention_norm, config_.norm_epsilon, a.inverse_rms);
  std::vector<float> keys(n * kv_width()), values(n * kv_width());
  a.query.resize(n * query_width());
  multiply_transposed(h.data(), w.query.data(), a.query.data(), n, query_width(), width);
  multiply_transposed(h.data(), w.key.data(), keys.data(), n, kv_width(), width);
  multiply_transposed(h.data(), w.value.data(), values.data(), n, kv_width(), width);
  add_bias(a.query, w.query_bias);
  add_bias(keys, w.key_bias);
  add_bias(values, w.value_bias);
  rotate(a.query, n, config_.heads, prefix_, false);
  rotate(keys, n, config_.kv_heads, prefix_, false);
  a.keys = cache.keys[index];
  a.keys.insert(a.keys.end(), keys.begin(), keys.end());
  a.values = cache.values[index];
  a.values.insert(a.values.end(), values.begin(), values.end());
  std::vector<float> attended;
  attend(a, attended);
  multiply_transposed(attended.data(), w.output.data(), x.data(), n, width, query_width(), true);

  a.middle = x;
  const std::vector<float> m =
      rms_norm(x, w.hidden_norm, config_.norm_epsilon, a.middle_inverse_rms);
  a.gate.resize(n * config_.hidden);
  a.up.resize(n * config_.hidden);
  multiply_transposed(m.data(), w.gate.data(), a.gate.data(), n, config_.hidden, width);
  multiply_transposed(m.data(), w.up.data(), a.up.data(), n, config_.hidden, width);
  std::vector<float> units;
  gate_units(a.gate, a.up, units);
  multiply_transposed(units.data(), w.down.data(), x.data(), n, width, config_.hidden, true);
  return ok_status();
}

Status Transformer::forward(const Cache& cache, std::span<const int32_t> tokens) {
  prefix_ = cache.tokens;
  tokens_ = tokens.size();
  layers_.assign(config_.layers, {});
  std::vector<float> x;
  for (int32_t token : tokens) {
    KVCODEC_TRY(const std::vector<float> row, weights_.embedding(token));
    x.insert(x.end(), row.begin(), row.end());
  }
  for (uint32_t i = 0; i < config_.layers; ++i) KVCODEC_CHECK(layer_forward(i, cache, x));
  final_ = std::move(x);
  KVCODEC_TRY(output_norm_, weights_.output_norm());
  if (output_.empty()) {
    KVCODEC_TRY(output_, weights_.output());
  }
  const std::vector<float> h =
      rms_norm(final_, output_norm_, config_.norm_epsilon, final_inverse_rms_);
  logits_.resize(tokens_ * config_.vocabulary);
  multiply_transposed(h.data(), output_.data(), logits_.data(), tokens_, config_.vocabulary,
                      config_.width);
  probabilities_ = logits_;
  softmax_rows(probabilities_.data(), tokens_, config_.vocabulary);
  return ok_status();
}

Status Transformer::backward_of_sample(uint64_t seed, const EachGradient& each) {
  const size_t vocabulary = config_.vocabulary;
  // mt19937_64's sequence is the standard's; its distributions are not, so they are not used.
  std::mt19937_64 random(seed);
  std::vector<float> by_logits(probabilities_.size());
  for (size_t t = 0; t < tokens_; ++t) {
    const float* p = &probabilities_[t * vocabulary];
    double left = std::ldexp(static_cast<double>(random() >> 11), -53);
    size_t y = 0;
    while (y + 1 < vocabulary && left >= p[y]) left -= p[y++];
    std::transform(p, p + vocabulary, &by_logits[t * vocabulary], [](float x) { return -x; });
    by_logits[t * vocabulary + y] += 1;
  }
  std::vector<float> by_norm(tokens_ * config_.width), gradient(by_norm.size());
  multiply(by_logits.data(), output_.data(), by_norm.data(), tokens_, config_.width, vocabulary);
  rms_norm_backward(by_norm, final_, final_inverse_rms_, output_norm_, gradient);
  for (uint32_t i = config_.layers; i-- > 0;) KVCODEC_CHECK(layer_backward(i, gradient, each));
  return ok_status();
}

Status Transformer::layer_backward(uint32_t index, std::vector<float>& gradient,
                                   const EachGradient& each) {
  KVCODEC_TRY(const DecoderLayer w, weights_.layer(index));
  const Activations& a = layers_[index];
  const size_t width = config_.width, n = tokens_, hidden = config_.hidden;
  std::vector<float> by_units(n * hidden), by_up(n * hidden);
  multiply(gradient.data(), w.down.data(), by_units.data(), n, hidden, width);
  for (size_t i = 0; i < by_units.size(); ++i) {
    const float s = sigmoid(a.gate[i]), unit = by_units[i];
    by_up[i] = unit * a.gate[i] * s;
    by_units[i] = unit * a.up[i] * s * (1 + a.gate[i] * (1 - s));
  }
  std::vector<float> by_norm(n * width);
  multiply(by_units.data(), w.gate.data(), by_norm.data(), n, width, hidden);
  multiply(by_up.data(), w.up.data(), by_norm.data(), n, width, hidden, true);
  rms_norm_backward(by_norm, a.middle, a.middle_inverse_rms, w.hidden_norm, gradient);

  std::vector<float> by_attended(n * query_width()), query, keys, values;
  multiply(gradient.data(), w.output.data(), by_attended.data(), n, query_width(), width);
  attend_backward(a, by_attended, query, keys, values);
  rotate(keys, prefix_ + n, config_.kv_heads, 0, true);
  rotate(query, n, config_.heads, prefix_, true);
  const size_t own = size_t{prefix_} * kv_width();
  multiply(query.data(), w.query.data(), by_norm.data(), n, width, query_width());
  multiply(&keys[own], w.key.data(), by_norm.data(), n, width, kv_width(), true);
  multiply(&values[own], w.value.data(), by_norm.data(), n, width, kv_width(), true);
  rms_norm_backward(by_norm, a.input, a.inverse_rms, w.attention_norm, gradient);
  keys.resize(own);
  values.resize(own);
  each(KvKind::key, index, keys);
  each(KvKind::value, index, values);
  return ok_status();
}

}  // namespace kvcodec::calibration
