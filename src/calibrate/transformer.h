// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kvcodec/calibrate.h"
#include "transform/rotation.h"

namespace kvcodec::calibration {

// A numpy-sized transformer in binary32: a continuation after a given KV cache, forwards, and
// backwards to that cache. It exists for its gradients, which inference engines do not give;
// weights are read layer by layer, so memory is one layer, the output matrix and the activations
// of the continuation. Sums are OpenBLAS's. Not thread-safe.
class Transformer {
 public:
  // [layers] of one kind: rotated keys or values, [tokens][kv_heads * head_dim].
  struct Cache {
    uint32_t tokens = 0;
    std::vector<std::vector<float>> keys, values;
  };
  // Gradient by the cache of one layer: un-rotated keys, or values; [tokens][kv_heads * head_dim].
  using EachGradient =
      std::function<void(KvKind kind, uint32_t layer, const std::vector<float>& rows)>;

  explicit Transformer(const DecoderWeights& weights)
      : weights_(weights), config_(weights.config()) {}

  // Computes `tokens` at positions cache.tokens on and keeps what backward() needs. `cache` is
  // borrowed until then. Requires tokens inside the vocabulary, at least one.
  Status forward(const Cache& cache, std::span<const int32_t> tokens);
  // Logits after each token, [tokens][vocabulary].
  const std::vector<float>& logits() const { return logits_; }
  // Queries of a layer of the last forward() as un-rotated keys of the prefix meet them: turned
  // back by the positions of `places` prefix tokens, evenly spread. Requires a forward() before.
  // [places * tokens * heads / kv_heads][kv_heads * head_dim].
  std::vector<float> queries_at_prefix(uint32_t layer, uint32_t places) const;
  // The gradient of sum over tokens of log p(y), every y drawn from what the model predicts.
  // Deterministic for a seed. Layers come last to first. Requires a forward() before.
  Status backward_of_sample(uint64_t seed, const EachGradient& each);

 private:
  struct Activations {                      // of one layer; [tokens] rows
    std::vector<float> input, inverse_rms;  // before the first norm
    std::vector<float> query;               // rotated
    std::vector<float> keys, values;        // cache and continuation
    std::vector<float> attention;           // [kv_heads][heads / kv_heads][tokens][all tokens]
    std::vector<float> middle, middle_inverse_rms;
    std::vector<float> gate, up;
  };
  size_t query_width() const { return size_t{config_.heads} * config_.head_dim; }
  size_t kv_width() const { return size_t{config_.kv_heads} * config_.head_dim; }
  void attend(Activations& a, std::vector<float>& out) const;
  // From the gradient by attention's output to those by queries (rotated), keys and values.
  void attend_backward(const Activations& a, const std::vector<float>& out_gradient,
                       std::vector<float>& query, std::vector<float>& keys,
                       std::vector<float>& values) const;
  Status layer_forward(uint32_t index, const Cache& cache, std::vector<float>& x);
  Status layer_backward(uint32_t index, std::vector<float>& gradient, const EachGradient& each);
  // Turns rows [count][heads * head_dim] of positions first.. in place.
  void rotate(std::vector<float>& rows, size_t count, uint32_t heads, uint32_t first,
              bool backwards) const;

  const DecoderWeights& weights_;
  const DecoderConfig& config_;
  uint32_t prefix_ = 0;
  size_t tokens_ = 0;
  std::vector<Activations> layers_;
  std::vector<float> final_, final_inverse_rms_, output_norm_, output_, logits_, probabilities_;
};

// Rows [count][heads * dim] with the query heads of a KV head one after the other:
// [count * heads / kv_heads][kv_heads * dim].
std::vector<float> by_kv_head(const std::vector<float>& rows, const DecoderConfig& config);

}  // namespace kvcodec::calibration
