// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

namespace kvcodec {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::corrupt: return "corrupt";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::unavailable: return "unavailable";
    case ErrorCode::io: return "io";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::device: return "device";
    case ErrorCode::internal: return "internal";
    case ErrorCode::cancelled: return "cancelled";
  }
  return "unknown";
}

}  // namespace kvcodec
