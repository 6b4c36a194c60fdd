// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "kvcodec/device.h"

namespace kvcodec {

Result<std::unique_ptr<DevicePublisher>> DevicePublisher::create(const DevicePublishOptions&) {
  return make_error(ErrorCode::unsupported,
                    "this build has no GPU support (the ffnvcodec headers were missing)");
}

}  // namespace kvcodec
