// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvcodec/store.h"
#include "store/http_client.h"
#include "store/s3_sign.h"
#include "store/s3_xml.h"
#include "store/store_uri.h"

namespace kvcodec {

// Objects in a bucket of Amazon S3 or of a server with its API, see docs/stores.md.
//
// S3 itself makes objects whole or absent: a PUT is one, and a multipart upload becomes one when it
// is completed. Requests are signed (Signature Version 4) with the SHA-256 of what they carry,
// which the server checks. The time of last use is that of the last put, and bounding the bucket is
// left to its lifecycle rules or to collect_garbage. remove asks first whether the object is there,
// as S3 does not tell: of several removals at once, more than one may succeed.
class S3Store final : public Store {
 public:
  static Result<std::unique_ptr<S3Store>> open(const StoreUri& uri, StoreOptions options);

  Result<size_t> get(std::string_view name, std::span<std::byte> out, uint64_t offset) override;
  Status put(std::string_view name, std::span<const std::byte> bytes) override;
  Result<ObjectStat> stat(std::string_view name) override;
  Result<std::vector<ObjectStat>> list(std::string_view prefix) override;
  Status remove(std::string_view name) override;

 private:
  using Query = std::vector<std::pair<std::string, std::string>>;
  struct Config {
    std::string shown{};
    std::string base_url{}, host{};  // the URL up to the path; the Host header
    std::string base_path{};         // "/bucket" for path style, else empty
    std::string prefix{};            // empty, or "some/where/"
    std::string region{}, profile{};
    bool anonymous = false;
    uint64_t multipart_bytes = uint64_t{64} << 20, part_bytes = uint64_t{16} << 20;
  };
  struct Part {
    Query query{};
    std::span<const std::byte> body{};
    std::string sha256{};                // of the body; empty where there is none
    std::vector<std::string> headers{};  // "x-amz-...": signed
  };

  S3Store(Config config, StoreOptions options, std::unique_ptr<HttpClient> client,
          S3Credentials credentials)
      : config_(std::move(config)),
        options_(std::move(options)),
        client_(std::move(client)),
        credentials_(std::move(credentials)) {}
  static Status set_endpoint(const StoreUri& uri, const std::string& endpoint, bool path_style,
                             Config& config);

  Deadline deadline() const { return Deadline::in(options_.deadline); }
  std::string what(std::string_view verb, std::string_view name) const;
  std::string path_of(std::string_view name) const;
  HttpRequest request(std::string method, const std::string& path, const Part& part);
  // The error of a reply that is no success. Mends what it can (the clock, expired keys) and then
  // asks for another attempt by unavailable.
  Error refused(std::string_view name, const HttpReply& reply);
  bool mend_clock(const HttpReply& reply);
  bool mend_credentials();
  // One request until it has one of two statuses.
  Result<HttpReply> call(std::string_view verb, std::string_view name, std::string method,
                         const std::string& path, const Part& part, Deadline deadline);

  Status put_whole(std::string_view name, std::span<const std::byte> bytes, Deadline deadline);
  Status put_in_parts(std::string_view name, std::span<const std::byte> bytes, Deadline deadline);
  Status upload_parts(std::string_view name, std::span<const std::byte> bytes,
                      const std::string& upload_id, Deadline deadline);
  Status complete(std::string_view name, const std::string& upload_id, const std::string& body,
                  uint64_t bytes, Deadline deadline);
  Result<ObjectStat> stat_until(std::string_view name, Deadline deadline);

  const Config config_;
  const StoreOptions options_;
  const std::unique_ptr<HttpClient> client_;
  std::mutex mutex_;  // guards credentials_
  S3Credentials credentials_;
  std::atomic<int64_t> clock_offset_s_{0};  // the server's clock minus ours
};

}  // namespace kvcodec
