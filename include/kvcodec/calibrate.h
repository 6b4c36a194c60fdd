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
  virtual Result<std::vector<float>> embedding(int32_t token) const = 0;  // [width]
  virtual Result<std::vector<float>> output_norm() const = 0;             // [width]
  virtual Result<std::vector<float>> output() const = 0;                  // [vocabulary][width]
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

struct CalibrationOptions {
  uint32_t group_layers = 0;           // layers of a group; 0: what max_group_channels allows
  uint32_t max_group_channels = 6144;  // memory and the time of a restore grow with it
  uint32_t window_tokens = 1024;       // of each text, from its beginning
  // After a window of a validation text, every other half as long: what is judged.
  uint32_t continuation_tokens = 128;
  uint32_t max_tokens = 98304;      // texts beyond are not computed
  uint32_t sink_tokens = 4;         // first of a sequence: stored exactly, not calibrated on
  uint32_t sensitivity_texts = 64;  // gradients are taken of so many texts
  double dead_zone = 0.5;           // codes are lowered where it pays, whatever this is
  // Highest mean KL of the continuation, nats a token, of tiers high, balanced and small, over the
  // validation texts.
  std::array<double, 3> kl = {0.0018, 0.009, 0.05};
  int threads = 0;  // 0: all cores
  uint64_t seed = 1;
  std::string state_path;         // an interrupted run goes on from this file; empty: never
  std::string provenance = "{}";  // a JSON object, kept in the profile
  std::function<void(std::string_view stage, size_t done, size_t total)> progress = {};
  // What is worth a line: another method than the best was taken, and why; a state was found.
  std::function<void(std::string_view note)> note = {};
  std::stop_token stop = {};  // ends with cancelled, the state kept
};

// What a calibration will take, before it starts.
struct CalibrationEstimate {
  uint64_t tokens = 0;         // calibrated on
  uint64_t tokens_needed = 0;  // calibrate() refuses fewer
  uint64_t validation_tokens = 0;
  uint64_t memory_bytes = 0;  // beside the model
  uint64_t state_bytes = 0;   // of the state file
  double seconds = 0;         // from a measured prefill of some hundred tokens
};
Result<CalibrationEstimate> estimate_calibration(CalibrationModel& model,
                                                 std::span<const CalibrationText> texts,
                                                 std::span<const CalibrationText> validation,
                                                 const CalibrationOptions& options);

struct CalibrationResult {
  ProfileFields profile;
  struct Stage {
    std::string name;
    double seconds = 0;
  };
  std::vector<Stage> stages;
};

// Calibrates on `texts`, and finds the tiers' steps on `validation`, which nothing else is fitted
// to. Deterministic for a model, texts, options and machine. invalid_argument where there are too
// few tokens (it says how many are needed) or a text serves both; cancelled by options.stop.
Result<CalibrationResult> calibrate(CalibrationModel& model, std::span<const CalibrationText> texts,
                                    std::span<const CalibrationText> validation,
                                    const CalibrationOptions& options);

// The KV of sequences from position 0, for engines that are not driven from here: number i of
// `count`; valid until the next call.
struct CalibrationDumps {
  KvShape shape;
  Rope rope;
  std::string model;
  Digest weights;
  size_t count = 0;
  std::function<Result<KvSource>(size_t index)> read;
};
// As calibrate(), from caches alone: noise is taken to cost the same, relative to a layer's own
// spread, wherever it is, so steps are in root mean squares and no KL is promised (0). Bits a value
// are measured on the last eighth of the dumps, at least one, on which nothing is fitted.
Result<CalibrationResult> calibrate_dumps(const CalibrationDumps& dumps,
                                          const CalibrationOptions& options);

}  // namespace kvcodec
