// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "calibrate/transformer.h"
#include "calibrate/transformer_math.h"

// Attention of one layer, a KV head and its queries at a time.
namespace kvcodec::calibration {
namespace {

// Columns [first, first + dim) of rows [count][width], packed.
void take_columns(const std::vector<float>& rows, size_t width, size_t first, size_t dim,
                  float* out) {
  const size_t count = rows.size() / width;
  for (size_t r = 0; r < count; ++r)
    for (size_t i = 0; i < dim; ++i) out[r * dim + i] = rows[r * width + first + i];
}

void put_columns(const float* packed, size_t width, size_t first, size_t dim,
                 std::vector<float>& rows) {
  const size_t count = rows.size() / width;
  for (size_t r = 0; r < count; ++r)
    for (size_t i = 0; i < dim; ++i) rows[r * width + first + i] = packed[r * dim + i];
}

}  // namespace

std::vector<float> by_kv_head(const std::vector<float>& rows, const DecoderConfig& config) {
  const size_t dim = config.head_dim, width = size_t{config.heads} * dim;
  const size_t shared = config.heads / config.kv_heads, count = rows.size() / width;
  std::vector<float> out(rows.size());
  for (size_t r = 0; r < count; ++r) {
    for (size_t i = 0; i < shared; ++i) {
      for (size_t h = 0; h < config.kv_heads; ++h)
        std::copy_n(&rows[r * width + (h * shared + i) * dim], dim,
                    &out[((r * shared + i) * config.kv_heads + h) * dim]);
    }
  }
  return out;
}

std::vector<float> Transformer::queries_at_prefix(uint32_t layer, uint32_t places) const {
  std::vector<float> out;
  for (uint32_t i = 0; i < places; ++i) {
    std::vector<float> rows = layers_[layer].query;
    const uint64_t position = uint64_t{prefix_} * (2 * i + 1) / (2 * places);
    // All queries as heads of one token: they are turned by one angle.
    rotate(rows, 1, static_cast<uint32_t>(tokens_ * config_.heads), static_cast<uint32_t>(position),
           true);
    const std::vector<float> grouped = by_kv_head(rows, config_);
    out.insert(out.end(), grouped.begin(), grouped.end());
  }
  return out;
}

void Transformer::attend(Activations& a, std::vector<float>& out) const {
  const size_t dim = config_.head_dim, all = prefix_ + tokens_;
  const size_t shared = config_.heads / config_.kv_heads, rows = shared * tokens_;
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  std::vector<float> query(rows * dim), keys(all * dim), values(all * dim), result(rows * dim);
  a.attention.resize(config_.kv_heads * rows * all);
  out.assign(tokens_ * query_width(), 0);
  for (size_t h = 0; h < config_.kv_heads; ++h) {
    take_columns(a.keys, kv_width(), h * dim, dim, keys.data());
    take_columns(a.values, kv_width(), h * dim, dim, values.data());
    for (size_t i = 0; i < shared; ++i)
      take_columns(a.query, query_width(), (h * shared + i) * dim, dim, &query[i * tokens_ * dim]);
    float* weights = &a.attention[h * rows * all];
    multiply_transposed(query.data(), keys.data(), weights, rows, all, dim);
    for (size_t r = 0; r < rows; ++r) {
      const size_t seen = prefix_ + r % tokens_ + 1;
      for (size_t t = 0; t < all; ++t)
        weights[r * all + t] =
            t < seen ? weights[r * all + t] * scale : -std::numeric_limits<float>::infinity();
    }
    softmax_rows(weights, rows, all);
    multiply(weights, values.data(), result.data(), rows, dim, all);
    for (size_t i = 0; i < shared; ++i)
      put_columns(&result[i * tokens_ * dim], query_width(), (h * shared + i) * dim, dim, out);
  }
}

void Transformer::attend_backward(const Activations& a, const std::vector<float>& out_gradient,
                                  std::vector<float>& query, std::vector<float>& keys,
                                  std::vector<float>& values) const {
  const size_t dim = config_.head_dim, all = prefix_ + tokens_;
  const size_t shared = config_.heads / config_.kv_heads, rows = shared * tokens_;
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  std::vector<float> head_query(rows * dim), head_keys(all * dim), head_values(all * dim);
  std::vector<float> head_out(rows * dim), scores(rows * all), result(std::max(rows, all) * dim);
  query.assign(tokens_ * query_width(), 0);
  keys.assign(all * kv_width(), 0);
  values.assign(all * kv_width(), 0);
  for (size_t h = 0; h < config_.kv_heads; ++h) {
    take_columns(a.keys, kv_width(), h * dim, dim, head_keys.data());
    take_columns(a.values, kv_width(), h * dim, dim, head_values.data());
    for (size_t i = 0; i < shared; ++i) {
      const size_t column = (h * shared + i) * dim;
      take_columns(a.query, query_width(), column, dim, &head_query[i * tokens_ * dim]);
      take_columns(out_gradient, query_width(), column, dim, &head_out[i * tokens_ * dim]);
    }
    const float* weights = &a.attention[h * rows * all];
    multiply_by_tokens(weights, head_out.data(), result.data(), all, dim, rows);
    put_columns(result.data(), kv_width(), h * dim, dim, values);
    multiply_transposed(head_out.data(), head_values.data(), scores.data(), rows, all, dim);
    for (size_t r = 0; r < rows; ++r) {
      const float* w = &weights[r * all];
      float* s = &scores[r * all];
      double mean = 0;
      for (size_t t = 0; t < all; ++t) mean += double{s[t]} * w[t];
      for (size_t t = 0; t < all; ++t) s[t] = w[t] * (s[t] - static_cast<float>(mean)) * scale;
    }
    multiply_by_tokens(scores.data(), head_query.data(), result.data(), all, dim, rows);
    put_columns(result.data(), kv_width(), h * dim, dim, keys);
    multiply(scores.data(), head_keys.data(), result.data(), rows, dim, all);
    for (size_t i = 0; i < shared; ++i)
      put_columns(&result[i * tokens_ * dim], query_width(), (h * shared + i) * dim, dim, query);
  }
}

}  // namespace kvcodec::calibration
