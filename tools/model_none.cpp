// SPDX-License-Identifier: Apache-2.0
#include "eval.h"
#include "model.h"

namespace kvcodec::tools {

namespace {

Error no_engine() {
  return {ErrorCode::unsupported,
          "this kvcodec was built without the llama.cpp engine (KVCODEC_WITH_LLAMA=ON)"};
}

}  // namespace

Result<ModelPublish> publish_text(Store&, const ModelArgs&, EncodeOptions) { return no_engine(); }

Result<Answer> fetch_and_answer(Store&, const ModelArgs&, const AnswerArgs&) { return no_engine(); }

Result<EvalReport> evaluate(const EvalArgs&) { return no_engine(); }

}  // namespace kvcodec::tools
