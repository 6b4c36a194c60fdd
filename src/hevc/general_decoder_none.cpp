// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "hevc/decoder.h"

namespace kvcodec::hevc {

Result<std::unique_ptr<Decoder>> create_general_decoder(int) {
  return make_error(ErrorCode::unsupported, "this build has no libavcodec");
}

}  // namespace kvcodec::hevc
