// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/calibration_plan.h"
#include "calibrate/moments.h"
#include "calibrate/transformer.h"
#include "kvcodec/calibrate.h"

namespace kvcodec::calibration {

// Second moments of the gradients by each head of each layer: [layers][kv_heads][dim][dim], the
// mean over prefix tokens and samples, a token of the continuation. Half of n^T (this) n, summed
// over the prefix, is the KL that small noise n makes (Fisher information).
class HeadMoments {
 public:
  HeadMoments(const KvShape& shape, KvKind kind);
  // rows: [tokens][kv_heads * dim] of one layer.
  void add(uint32_t layer, const float* rows, size_t tokens);
  void count(size_t tokens) { tokens_ += tokens; }

  uint64_t tokens() const { return tokens_; }
  const std::vector<float>& sums() const { return sums_; }
  void restore(uint64_t tokens, std::vector<float> sums) {
    tokens_ = tokens;
    sums_ = std::move(sums);
  }

 private:
  size_t heads_, dim_;
  uint64_t tokens_ = 0;
  std::vector<float> sums_;
};

// The first `tokens` of a cache as it is, keys rotated.
Result<Transformer::Cache> rotated_cache(const KvSource& kv, uint32_t tokens);

// What the gradients of one window add, its prefix and continuation being parts of it.
// `prefix` is the KV of at least its first tokens. `samples` continuations are drawn.
struct WindowSplit {
  uint32_t prefix = 0, continuation = 0, samples = 2;
};
WindowSplit split_window(size_t tokens);
// `queries` are added up as the prefix's keys meet them: noise along them changes scores.
struct WindowMoments {
  HeadMoments* gradients[2];  // K, V
  HeadMoments* queries;
};
Status add_gradients(const DecoderWeights& weights, const KvSource& kv,
                     std::span<const int32_t> tokens, const CalibrationOptions& options,
                     uint64_t seed, const WindowMoments& moments);
// Second moments of what the output projection makes of unit noise in each head's values.
Result<HeadMoments> output_moments(const DecoderWeights& weights, const KvShape& shape);

// How far our own computation is from the engine's, as mean KL over the continuation: gradients
// are of the engine's model only where it is small.
Result<double> decoder_mismatch(CalibrationModel& model, const KvSource& kv,
                                std::span<const int32_t> tokens);

// The cost of noise for each head, measured: noise of a known size put into one head's cache after
// the other, and the continuation judged. [layers][kv_heads] of KL a unit of mean square noise.
// `spread` is the mean square of each head's centred values: what noise is scaled by.
struct InjectedCosts {  // NOLINT(readability-identifier-naming): as Header
  std::vector<double> costs[2];
};
Result<InjectedCosts> inject_noise(CalibrationModel& model, std::span<const Window> windows,
                                   const std::vector<double> (&spread)[2],
                                   const CalibrationOptions& options);

}  // namespace kvcodec::calibration
