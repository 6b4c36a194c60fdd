// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <utility>

#include "base/error.h"
#include "engines/llama_weights.h"
#include "kvcodec/calibrate.h"
#include "kvcodec/llama.h"

namespace kvcodec {
namespace {

class LlamaCalibration final : public CalibrationModel {
 public:
  LlamaCalibration(LlamaEngine engine, std::unique_ptr<DecoderWeights> weights)
      : engine_(std::move(engine)), weights_(std::move(weights)) {
    facts_ = {.name = engine_.model_name(),
              .weights = engine_.weights_digest(),
              .shape = engine_.shape(),
              .rope = engine_.rope(),
              .context_tokens = engine_.context_tokens()};
  }

  const Facts& facts() const override { return facts_; }

  // The texts are the caller's own, so that a chat's turns may be marked as the model knows them.
  Result<std::vector<int32_t>> tokenize(std::string_view text) const override {
    return engine_.tokenize(text, {.add_special = true, .parse_special = true});
  }

  Result<KvSource> prefill(std::span<const int32_t> tokens) override {
    engine_.reset();
    KVCODEC_CHECK(engine_.prefill(tokens));
    KVCODEC_TRY(kv_, engine_.export_kv());
    return kv_->source();
  }

  Status continue_from(uint32_t prefix, const Fill& fill, std::span<const int32_t> tokens,
                       const EachLogits& each) override {
    KVCODEC_TRY(LlamaKv kv, engine_.prepare_restore(prefix));
    KVCODEC_CHECK(fill(kv.target()));
    KVCODEC_CHECK(engine_.commit_restore(std::move(kv), prefix));
    return engine_.score(tokens, each);
  }

  const DecoderWeights* weights() const override { return weights_.get(); }

 private:
  LlamaEngine engine_;
  std::unique_ptr<DecoderWeights> weights_;
  std::optional<LlamaKv> kv_;
  Facts facts_;
};

}  // namespace

Result<std::unique_ptr<CalibrationModel>> open_llama_calibration(const std::string& model_path,
                                                                 const LlamaOptions& options) {
  KVCODEC_TRY(LlamaEngine engine, LlamaEngine::open(model_path, options));
  auto weights = open_llama_weights(model_path, engine.shape(), engine.rope());
  if (!weights.ok() && weights.error().code != ErrorCode::unsupported)
    return std::move(weights.error());
  std::unique_ptr<DecoderWeights> known;
  if (weights.ok()) known = *std::move(weights);
  return std::unique_ptr<CalibrationModel>(
      std::make_unique<LlamaCalibration>(std::move(engine), std::move(known)));
}

}  // namespace kvcodec
