// SPDX-License-Identifier: Apache-2.0
#include "calibration.h"
#include "kvcodec/llama.h"

namespace kvcodec::tools {

Result<std::unique_ptr<CalibrationModel>> open_calibration_model(const std::string& path,
                                                                 uint32_t context_tokens,
                                                                 uint32_t logit_tokens,
                                                                 int threads) {
  LlamaOptions options;
  options.context_tokens = context_tokens;
  options.logit_tokens = logit_tokens;
  options.threads = threads;
  return open_llama_calibration(path, options);
}

}  // namespace kvcodec::tools
