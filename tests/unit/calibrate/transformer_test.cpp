// SPDX-License-Identifier: Apache-2.0
#include "calibrate/transformer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kvcodec::calibration {
namespace {

// A model of random weights, small enough for differences of logits to be taken by hand.
class RandomWeights final : public DecoderWeights {
 public:
  explicit RandomWeights(Rope::Style style, bool bias) : bias_(bias) {
    config_ = {.layers = 3,
               .width = 24,
               .heads = 4,
               .kv_heads = 2,
               .head_dim = 8,
               .hidden = 32,
               .vocabulary = 50,
               .norm_epsilon = 1e-5F,
               .rope = *make_rope(style, 6, 100)};
  }
  const DecoderConfig& config() const override { return config_; }
  Result<DecoderLayer> layer(uint32_t index) const override {
    const uint32_t seed = 100 * index;
    DecoderLayer w;
    w.attention_norm = numbers(24, seed + 1, 0.2, 1);
    w.query = numbers(32 * 24, seed + 2, 0.3, 0);
    w.key = numbers(16 * 24, seed + 3, 0.3, 0);
    w.value = numbers(16 * 24, seed + 4, 0.3, 0);
    w.output = numbers(24 * 32, seed + 5, 0.3, 0);
    if (bias_) {
      w.query_bias = numbers(32, seed + 6, 0.5, 0);
      w.key_bias = numbers(16, seed + 7, 0.5, 0);
      w.value_bias = numbers(16, seed + 8, 0.5, 0);
    }
    w.hidden_norm = numbers(24, seed + 9, 0.2, 1);
    w.gate = numbers(32 * 24, seed + 10, 0.3, 0);
    w.up = numbers(32 * 24, seed + 11, 0.3, 0);
    w.down = numbers(24 * 32, seed + 12, 0.3, 0);
    return w;
  }
  Result<std::vector<float>> embedding(int32_t token) const override {
    return numbers(24, 5000 + static_cast<uint32_t>(token), 1, 0);
  }
  Result<std::vector<float>> output_norm() const override { return numbers(24, 900, 0.2, 1); }
  Result<std::vector<float>> output() const override { return numbers(50 * 24, 901, 0.3, 0); }

  static std::vector<float> numbers(size_t n, uint32_t seed, double size, double mean) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(static_cast<float>(mean), static_cast<float>(size));
    std::vector<float> out(n);
    for (float& x : out) x = normal(random);
    return out;
  }

 private:
  bool bias_;
  DecoderConfig config_;
};

Transformer::Cache some_cache(uint32_t tokens) {
  Transformer::Cache cache;
  cache.tokens = tokens;
  for (uint32_t layer = 0; layer < 3; ++layer) {
    cache.keys.push_back(RandomWeights::numbers(tokens * 16, 300 + layer, 1, 0));
    cache.values.push_back(RandomWeights::numbers(tokens * 16, 400 + layer, 1, 0));
  }
  return cache;
}

constexpr int32_t kTokens[] = {3, 41, 7, 7, 20};
constexpr uint32_t kPrefix = 6;

double log_probability(const Transformer& model, size_t token, size_t y) {
  const float* logits = &model.logits()[token * 50];
  double sum = 0;
  for (size_t i = 0; i < 50; ++i) sum += std::exp(double{logits[i]});
  return logits[y] - std::log(sum);
}

struct Case {
  Rope::Style style;
  bool bias;
};
class TransformerTest : public testing::TestWithParam<Case> {};

// A continuation computed at once is one computed token after token: attention sees no future.
TEST_P(TransformerTest, TokensSeeWhatComesBeforeThemOnly) {
  const RandomWeights weights(GetParam().style, GetParam().bias);
  const Transformer::Cache cache = some_cache(kPrefix);
  Transformer all(weights), part(weights);
  ASSERT_TRUE(all.forward(cache, kTokens).ok());
  ASSERT_TRUE(part.forward(cache, std::span(kTokens).first(2)).ok());
  for (size_t i = 0; i < 2 * 50; ++i) EXPECT_NEAR(all.logits()[i], part.logits()[i], 1e-4);
}

// Of one drawn continuation every gradient is the difference that a small change makes.
TEST_P(TransformerTest, GradientsAreDifferences) {
  const RandomWeights weights(GetParam().style, GetParam().bias);
  Transformer::Cache cache = some_cache(kPrefix);
  Transformer model(weights);
  ASSERT_TRUE(model.forward(cache, kTokens).ok());
  std::vector<std::vector<float>> gradients[2] = {std::vector<std::vector<float>>(3),
                                                  std::vector<std::vector<float>>(3)};
  ASSERT_TRUE(
      model
          .backward_of_sample(5,
                              [&](KvKind kind, uint32_t layer, const std::vector<float>& rows) {
                                gradients[static_cast<size_t>(kind)][layer] = rows;
                              })
          .ok());
  // The same draw as the gradient's: probabilities, then inverse of their sums.
  std::mt19937_64 random(5);
  std::vector<size_t> drawn;
  for (size_t t = 0; t < std::size(kTokens); ++t) {
    double left = std::ldexp(static_cast<double>(random() >> 11), -53);
    size_t y = 0;
    while (y + 1 < 50 && left >= std::exp(log_probability(model, t, y)))
      left -= std::exp(log_probability(model, t, y++));
    drawn.push_back(y);
  }
  const auto total = [&]() {
    EXPECT_TRUE(model.forward(cache, kTokens).ok());
    double sum = 0;
    for (size_t t = 0; t < drawn.size(); ++t) sum += log_probability(model, t, drawn[t]);
    return sum;
  };
  const auto check = [&](float& place, double gradient, const std::string& name) {
    const float before = place;
    constexpr float kStep = 5e-3F;
    place = before + kStep;
    const double above = total();
    place = before - kStep;
    const double below = total();
    place = before;
    EXPECT_NEAR((above - below) / (2 * kStep), gradient, 2e-3 + 0.02 * std::abs(gradient)) << name;
  };
  double largest = 0;
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (size_t i = 0; i < kPrefix * 16; i += 7) {
      check(cache.values[layer][i], gradients[1][layer][i],
            "value " + std::to_string(layer) + " " + std::to_string(i));
      largest = std::max<double>(largest, std::abs(gradients[1][layer][i]));
    }
    // Keys of position 0 are not rotated, so that there both gradients are one.
    for (size_t i = 0; i < 16; i += 3)
      check(cache.keys[layer][i], gradients[0][layer][i],
            "key " + std::to_string(layer) + " " + std::to_string(i));
    // At another position the gradient is turned back: its length is that of the differences.
    const size_t head = 4 * 16;
    double by_turn = 0, by_difference = 0;
    for (size_t i = head; i < head + 8; ++i) {
      float& place = cache.keys[layer][i];
      const float before = place;
      place = before + 5e-3F;
      const double above = total();
      place = before - 5e-3F;
      const double below = total();
      place = before;
      by_difference += std::pow((above - below) / 1e-2, 2);
      by_turn += std::pow(double{gradients[0][layer][i]}, 2);
    }
    EXPECT_NEAR(std::sqrt(by_turn), std::sqrt(by_difference),
                2e-3 + 0.03 * std::sqrt(by_difference));
  }
  EXPECT_GT(largest, 0.01);
}

// Queries are turned back as the gradient by a key is, and those of a KV head come together.
TEST_P(TransformerTest, QueriesMeetKeysThatAreNotRotated) {
  const RandomWeights weights(GetParam().style, GetParam().bias);
  Transformer::Cache cache = some_cache(kPrefix);
  Transformer model(weights);
  ASSERT_TRUE(model.forward(cache, kTokens).ok());
  const size_t tokens = std::size(kTokens), shared = 2, width = 16;
  const std::vector<float> first = model.queries_at_prefix(1, 1);  // seen from position 3
  ASSERT_EQ(first.size(), tokens * shared * width);
  EXPECT_EQ(model.queries_at_prefix(1, 3).size(), 3 * first.size());
  // The gradient by an un-rotated key is a sum of the queries that meet it: of one token, it lies
  // in the plane of the two that share a KV head.
  for (size_t head = 0; head < 2; ++head) {
    Transformer one(weights);
    ASSERT_TRUE(one.forward(cache, std::span(kTokens).first(1)).ok());
    const std::vector<float> queries = one.queries_at_prefix(2, 1);
    std::vector<double> gradient(8);
    ASSERT_TRUE(
        one.backward_of_sample(9,
                               [&](KvKind kind, uint32_t layer, const std::vector<float>& rows) {
                                 if (kind != KvKind::key || layer != 2) return;
                                 for (size_t i = 0; i < 8; ++i)
                                   gradient[i] = rows[3 * width + head * 8 + i];
                               })
            .ok());
    double length = 0, left = 0;
    std::vector<std::vector<double>> basis;
    for (size_t q = 0; q < shared; ++q) {
      std::vector<double> v(
          queries.begin() + static_cast<std::ptrdiff_t>(q * width + head * 8),
          queries.begin() + static_cast<std::ptrdiff_t>(q * width + head * 8 + 8));
      for (const auto& b : basis) {
        double dot = 0;
        for (size_t i = 0; i < 8; ++i) dot += v[i] * b[i];
        for (size_t i = 0; i < 8; ++i) v[i] -= dot * b[i];
      }
      double norm = 0;
      for (double x : v) norm += x * x;
      for (double& x : v) x /= std::sqrt(norm);
      basis.push_back(v);
    }
    for (double x : gradient) length += x * x;
    for (const auto& b : basis) {
      double dot = 0;
      for (size_t i = 0; i < 8; ++i) dot += gradient[i] * b[i];
      for (size_t i = 0; i < 8; ++i) gradient[i] -= dot * b[i];
    }
    for (double x : gradient) left += x * x;
    EXPECT_GT(length, 1e-8);
    EXPECT_LT(left, 1e-6 * length);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TransformerTest,
                         testing::Values(Case{Rope::Style::interleaved, false},
                                         Case{Rope::Style::neox, true}));

}  // namespace
}  // namespace kvcodec::calibration
