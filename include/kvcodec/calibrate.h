// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/codec.h"
#include "kvcodec/key.h"
#include "kvcodec/kv.h"
#include "kvcodec/profile.h"
#include "kvcodec/result.h"

// Makes a profile of a model: which directions its KV cache varies in, how much noise in each
// hurts what the model says next, and the steps at which a tier does as little harm as it promises.
namespace kvcodec {

// The weights of a decoder-only transformer of the llama kind: RMSNorm, grouped-query attention
// with RoPE, gated SiLU. Matrices are [outputs][inputs].
struct DecoderConfig {
  uint32_t layers = 0, width = 0, heads = 0, kv_heads = 0, head_dim = 0, hidden = 0;
  uint32_t vocabulary = 0;
  float norm_epsilon = 0;
  Rope rope;
};
struct DecoderLayer {
  std::vector<float> attention_norm, query, key, value, output;
  std::vector<float> query_bias, key_bias, value_bias;  // empty: none
  std::vector<float> hidden_norm, gate, up, down;
};
class DecoderWeights {
 public:
  virtual ~DecoderWeights() = default;
  virtual const DecoderConfig& config() const = 0;
  virtual Result<DecoderLayer> layer(uint32_t index) const = 0;
  virtual Result<std::vector<float>> embedding(int32_t token) const = 0;    // [width]
  virtual Result<std::vector<float>> output_norm() const = 0;               // [width]
  virtual Result<std::vector<float>> output() const = 0;  // [vocabulary][width]
};

// A language model as calibration sees it. One thread at a time.
class CalibrationModel {
 public:
  struct Facts {
    std::string name;
    Digest weights;
    KvShape shape;
    Rope rope;
    uint32_t context_tokens = 0;
  };
  using Fill = std::function<Status(const KvTarget&)>;
  using EachLogits = std::function<void(size_t index, std::span<const float> logits)>;

  virtual ~CalibrationModel() = default;
  virtual const Facts& facts() const = 0;
  virtual Result<std::vector<int32_t>> tokenize(std::string_view text) const = 0;
  // The KV of `tokens` from an empty sequence; what it points to is valid until the next call.
  virtual Result<KvSource> prefill(std::span<const int32_t> tokens) = 0;
  // Logits after each of `tokens`, which follow `prefix` positions whose KV is what `fill` writes
  // (zeros where it writes nothing). each(i, logits) for i = 0.. in order.
  virtual Status continue_from(uint32_t prefix, const Fill& fill, std::span<const int32_t> tokens,
                               const EachLogits& each) = 0;
  // nullptr where the model is of another kind: sensitivities are then measured by injecting noise
  // for each head, which takes longer and tells less.
  virtual const DecoderWeights* weights() const { return nullptr; }
};

struct CalibrationText {
  std::string name;
  std::string text;
};

struct CalibrationTarget {
  double kl = 0;  // highest mean KL of the continuation, nats a token, over the validation texts
};

struct CalibrationOptions {
  uint32_t group_layers = 0;     // layers a group; 0: all that fit `max_group_channels`
  uint32_t max_group_channels = 6144;
  uint32_t window_tokens = 1024;  // of each text, from its beginning
  uint32_t continuation_tokens = 128;  // after a window of a validation text, judged
  uint32_t max_tokens = 65536;    // windows beyond are not computed
  uint32_t sink_tokens = 4;       // the sequence's first, stored exactly: not calibrated on
  uint32_t sensitivity_texts = 16;
  double dead_zone = 0.6;
  // KL of high, balanced and small, to be met on texts that nothing was fitted to.
  std::array<double, 3> kl = {0.0018, 0.009, 0.05};
  int threads = 0;
  uint64_t seed = 1;
  // Where the state of an interrupted run is kept and looked for; empty: nowhere.
  std::string state_path;
  std::string provenance = "{}";  // JSON object, kept in the profile
  std::function<void(std::string_view stage, size_t done, size_t total)> progress = {};
  std::stop_token stop = {};
};

}  // namespace kvcodec
