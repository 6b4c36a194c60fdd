// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/result.h"

namespace kvcodec {

// The XML documents of the S3 API that the store reads. Each must be well-formed, without DOCTYPE
// (so without entities of its own), at most 16 levels deep: corrupt otherwise. Their size is
// bounded by whoever received them.

struct S3ErrorReply {
  std::string code, message;  // empty where the document does not say
};
S3ErrorReply parse_s3_error(std::string_view xml);  // never fails: what is no error says nothing

struct S3Listing {
  struct Object {
    std::string key;
    uint64_t bytes = 0;
    std::chrono::system_clock::time_point modified;
  };
  std::vector<Object> objects;
  bool truncated = false;
  std::string next_token;
};
Result<S3Listing> parse_s3_listing(std::string_view xml);

Result<std::string> parse_s3_upload_id(std::string_view xml);
// CompleteMultipartUpload may answer status 200 and an error: the error's code, empty for success.
Result<std::string> parse_s3_complete(std::string_view xml);

}  // namespace kvcodec
