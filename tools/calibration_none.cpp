// SPDX-License-Identifier: Apache-2.0
#include "calibration.h"

namespace kvcodec::tools {

Result<std::unique_ptr<CalibrationModel>> open_calibration_model(const std::string&, uint32_t,
                                                                 uint32_t, int) {
  return Error{ErrorCode::unsupported,
               "calibrate --model: this build has no engine; build with KVCODEC_WITH_LLAMA=ON, or "
               "calibrate from --dump"};
}

}  // namespace kvcodec::tools
