// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "hevc/nvdec.h"

namespace kvcodec::hevc {

static Error not_built() {
  return make_error(ErrorCode::unsupported,
                    "NVDEC: this build lacks it (the ffnvcodec headers were missing)");
}
Result<std::unique_ptr<NvdecPool>> NvdecPool::create(const NvdecOptions&) { return not_built(); }
Result<std::unique_ptr<Decoder>> create_nvdec_decoder(const NvdecOptions&) { return not_built(); }

}  // namespace kvcodec::hevc
