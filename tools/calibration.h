// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "kvcodec/calibrate.h"

namespace kvcodec::tools {

// A GGUF model to calibrate. calibration_llama.cpp opens it; calibration_none.cpp, in builds
// without an engine, answers `unsupported`.
Result<std::unique_ptr<CalibrationModel>> open_calibration_model(const std::string& path,
                                                                 uint32_t context_tokens,
                                                                 uint32_t logit_tokens,
                                                                 int threads);

}  // namespace kvcodec::tools
