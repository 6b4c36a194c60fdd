// SPDX-License-Identifier: Apache-2.0
// Of a build without HTTP client (http_client_none.cpp): no S3 store opens, so nothing comes here.
#include "base/error.h"
#include "store/s3_xml.h"

namespace kvcodec {
namespace {

Error no_parser() {
  return make_error(ErrorCode::unsupported, "this build reads no XML: expat was not found");
}

}  // namespace

S3ErrorReply parse_s3_error(std::string_view) { return {}; }
Result<S3Listing> parse_s3_listing(std::string_view) { return no_parser(); }
Result<std::string> parse_s3_upload_id(std::string_view) { return no_parser(); }
Result<std::string> parse_s3_complete(std::string_view) { return no_parser(); }

}  // namespace kvcodec
