// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "store/http_client.h"

namespace kvcodec {

Result<std::unique_ptr<HttpClient>> HttpClient::make(const StoreOptions&) {
  return make_error(ErrorCode::unsupported,
                    "this build has no HTTP and S3 stores: libcurl or expat was not found");
}

}  // namespace kvcodec
