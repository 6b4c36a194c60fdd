// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvcodec/key.h"

namespace kvcodec {

struct S3Credentials {
  std::string access_key, secret_key, session_token;
  bool operator==(const S3Credentials&) const = default;
  bool anonymous() const { return access_key.empty(); }
};

// What AWS Signature Version 4 signs of a request to S3.
struct S3SignedRequest {
  std::string method;
  std::string host;                                        // as the Host header has it
  std::string path;                                        // percent-encoded, from the slash
  std::vector<std::pair<std::string, std::string>> query;  // decoded, in any order
  std::vector<std::string> headers;                        // "name: value", names in lower case
  std::string payload_sha256;                              // in hexadecimal digits
};

// "name=value&...", encoded and sorted as the signature wants it: use it in the URL too.
std::string s3_query(const std::vector<std::pair<std::string, std::string>>& query);

// All headers to send but Host: the request's own and those that sign it ("AWS Signature Version 4"
// in the Amazon S3 API Reference, "Authenticating Requests: Using the Authorization Header").
std::vector<std::string> s3_sign(const S3SignedRequest& request, const S3Credentials& credentials,
                                 std::string_view region,
                                 std::chrono::system_clock::time_point now);

std::string base64(const Digest& digest);

}  // namespace kvcodec
