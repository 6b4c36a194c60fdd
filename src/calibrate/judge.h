// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "calibrate/calibration_plan.h"
#include "calibrate/predictions.h"
#include "calibrate/transformer.h"
#include "kvcodec/calibrate.h"
#include "kvcodec/profile.h"

namespace kvcodec::calibration {

// What coding the validation texts at one step gave, whole objects in chunks of the default size.
struct Judgement {
  double kl = 0, bits_per_value = 0;
  std::vector<float> noise;  // by group, mean of the chunks, as GroupDistortion has it
};

// The validation texts' exact caches and what follows from them, kept in memory: a cache and the
// logits of a continuation a text.
class Judge {
 public:
  // Without a model (dumps), KL is 0. `model` and `options` are borrowed.
  Judge(CalibrationModel* model, const CalibrationOptions& options)
      : model_(model), options_(options) {}

  // From now on continuations are computed here, in binary32, and not by the engine: one that
  // rounds activations to 8 bits answers the smallest change of a cache with a KL of some 0.004.
  // Requires a model with weights, whose computation is known to be right.
  void use_weights() { transformer_ = std::make_unique<Transformer>(*model_->weights()); }
  Status add_text(const Window& window);
  Status add_dump(const KvSource& kv);

  // Codes everything at the profile's tier `high`, whatever its distortion.
  Result<Judgement> judge(const Profile& profile);

 private:
  struct Text {
    KvGeometry geometry;
    std::vector<std::byte> memory;
    std::vector<int32_t> continuation;
    Predictions exact;
  };
  void keep_cache(const KvSource& kv, uint32_t tokens, Text& text) const;
  // Logits after each token of the continuation, from the cache that `fill` writes.
  Status continue_text(const Text& text, const CalibrationModel::Fill& fill,
                       const CalibrationModel::EachLogits& each);

  CalibrationModel* model_;
  const CalibrationOptions& options_;
  std::unique_ptr<Transformer> transformer_;
  std::vector<std::unique_ptr<Text>> texts_;
};

}  // namespace kvcodec::calibration
