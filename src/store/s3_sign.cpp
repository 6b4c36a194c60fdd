// SPDX-License-Identifier: Apache-2.0
#include "store/s3_sign.h"

#include <fmt/chrono.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <span>

#include "store/store_uri.h"

namespace kvcodec {
namespace {

std::string hex_sha256(std::string_view text) {
  return to_hex(sha256(std::as_bytes(std::span(text))));
}

Digest hmac_sha256(std::string_view key, std::string_view text) {
  Digest digest;
  unsigned int size = 0;
  ::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.bytes.data()), &size);
  return digest;
}

std::string_view as_text(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

}  // namespace

std::string base64(const Digest& digest) {
  std::string text(4 * ((digest.bytes.size() + 2) / 3) + 1, '\0');  // libcrypto ends it with a zero
  const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(digest.bytes.data()),
                                     static_cast<int>(digest.bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

std::string s3_query(const std::vector<std::pair<std::string, std::string>>& query) {
  std::vector<std::string> parts;
  parts.reserve(query.size());
  for (const auto& [name, value] : query) {
    parts.push_back(fmt::format("{}={}", percent_encode(name), percent_encode(value)));
  }
  std::sort(parts.begin(), parts.end());
  return fmt::format("{}", fmt::join(parts, "&"));
}

std::vector<std::string> s3_sign(const S3SignedRequest& request, const S3Credentials& credentials,
                                 std::string_view region,
                                 std::chrono::system_clock::time_point now) {
  std::vector<std::string> headers = request.headers;
  if (credentials.anonymous()) return headers;
  const std::string stamp =
      fmt::format("{:%Y%m%dT%H%M%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
  const std::string day = stamp.substr(0, 8);
  headers.push_back("x-amz-content-sha256: " + request.payload_sha256);
  headers.push_back("x-amz-date: " + stamp);
  if (!credentials.session_token.empty()) {
    headers.push_back("x-amz-security-token: " + credentials.session_token);
  }
  std::vector<std::string> signed_headers = headers;
  signed_headers.push_back("host: " + request.host);
  std::sort(signed_headers.begin(), signed_headers.end());
  std::string canonical, names;
  for (const std::string& header : signed_headers) {
    const size_t colon = header.find(':');
    const std::string_view name = std::string_view(header).substr(0, colon);
    canonical += fmt::format("{}:{}\n", name, std::string_view(header).substr(colon + 2));
    names += fmt::format("{}{}", names.empty() ? "" : ";", name);
  }
  const std::string hashed =
      hex_sha256(fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path,
                             s3_query(request.query), canonical, names, request.payload_sha256));
  const std::string scope = fmt::format("{}/{}/s3/aws4_request", day, region);
  const std::string to_sign = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", stamp, scope, hashed);
  Digest key = hmac_sha256("AWS4" + credentials.secret_key, day);
  for (const std::string_view step :
       {region, std::string_view("s3"), std::string_view("aws4_request")}) {
    key = hmac_sha256(as_text(key), step);
  }
  headers.push_back(fmt::format(
      "Authorization: AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={},Signature={}",
      credentials.access_key, scope, names, to_hex(hmac_sha256(as_text(key), to_sign))));
  return headers;
}

}  // namespace kvcodec
