// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/store.h"
#include "store/http_client.h"
#include "store/store_uri.h"

namespace kvcodec {

// Objects below a URL, read only: a CDN, or a plain file server on the folder that something else
// fills. A server that does not do ranges sends each object from its beginning; what was not asked
// for is dropped as it comes. put, list and remove are unsupported.
class HttpStore final : public Store {
 public:
  static Result<std::unique_ptr<HttpStore>> open(const StoreUri& uri, StoreOptions options);

  Result<size_t> get(std::string_view name, std::span<std::byte> out, uint64_t offset) override;
  Status put(std::string_view name, std::span<const std::byte> bytes) override;
  Result<ObjectStat> stat(std::string_view name) override;
  Result<std::vector<ObjectStat>> list(std::string_view prefix) override;
  Status remove(std::string_view name) override;

 private:
  struct Config {
    std::string shown{}, base_url{}, query{};
  };
  HttpStore(Config config, StoreOptions options, std::unique_ptr<HttpClient> client)
      : config_(std::move(config)), options_(std::move(options)), client_(std::move(client)) {}
  HttpRequest request(std::string method, std::string_view name) const;
  std::string what(std::string_view verb, std::string_view name) const;
  Error read_only(std::string_view verb) const;

  const Config config_;
  const StoreOptions options_;
  const std::unique_ptr<HttpClient> client_;
};

}  // namespace kvcodec
