// SPDX-License-Identifier: Apache-2.0
#include "store/http_store.h"

#include "base/error.h"
#include "store/store_name.h"

namespace kvcodec {
namespace {

Error refused(std::string_view name, const HttpReply& reply) {
  if (reply.status == 404 || reply.status == 410) {
    return make_error(ErrorCode::not_found, "no object '{}' in the HTTP store", name);
  }
  return make_error(is_transient_status(reply.status) ? ErrorCode::unavailable : ErrorCode::io,
                    "the server answers status {}", reply.status);
}

}  // namespace

Result<std::unique_ptr<HttpStore>> HttpStore::open(const StoreUri& uri, StoreOptions options) {
  // The store's own options are taken out of the query; the rest belongs to the server, which may
  // want a token with each request.
  UriParams params(uri);
  KVCODEC_CHECK(params.take_network(options));
  Config config{.shown = uri.shown};
  for (const auto& [name, value] : params.rest()) {
    config.query += fmt::format("{}{}={}", config.query.empty() ? '?' : '&', percent_encode(name),
                                percent_encode(value));
  }
  if (uri.host.empty()) {
    return make_error(ErrorCode::invalid_argument,
                      "store URI '{}': expected https://host/path, found no host", uri.shown);
  }
  if (options.max_bytes > 0) {
    return make_error(ErrorCode::unsupported, "store '{}': max_bytes: it is read only", uri.shown);
  }
  const bool is_ipv6 = uri.host.find(':') != std::string::npos;
  config.base_url = is_ipv6 ? fmt::format("{}://[{}]", uri.scheme, uri.host)
                            : fmt::format("{}://{}", uri.scheme, uri.host);
  if (uri.port != 0) config.base_url += fmt::format(":{}", uri.port);
  config.base_url += uri.raw_path;
  if (!uri.raw_path.ends_with('/')) config.base_url += '/';
  KVCODEC_TRY(auto client, HttpClient::make(options));
  client->set_login(uri.user, uri.password);
  return std::unique_ptr<HttpStore>(
      new HttpStore(std::move(config), std::move(options), std::move(client)));
}

HttpRequest HttpStore::request(std::string method, std::string_view name) const {
  HttpRequest made;
  made.method = std::move(method);
  made.url = config_.base_url + std::string(name) + config_.query;
  made.follow_redirects = true;
  return made;
}

std::string HttpStore::what(std::string_view verb, std::string_view name) const {
  return fmt::format("{} '{}' in {}", verb, name, config_.shown);
}

Error HttpStore::read_only(std::string_view verb) const {
  return make_error(ErrorCode::unsupported, "{} in {}: an HTTP store is read only", verb,
                    config_.shown);
}

Result<size_t> HttpStore::get(std::string_view name, std::span<std::byte> out, uint64_t offset) {
  KVCODEC_CHECK(validate_name(name));
  if (out.empty()) {
    KVCODEC_CHECK(stat(name));
    return size_t{0};
  }
  HttpRange range;
  range.prepare = [&](std::vector<std::string> headers) -> Result<HttpRequest> {
    HttpRequest made = request("GET", name);
    made.headers = std::move(headers);
    return made;
  };
  range.refused = [&](const HttpReply& reply) { return refused(name, reply); };
  return http_get_range(*client_, Deadline::in(options_.deadline), what("get", name), range, out,
                        offset);
}

Result<ObjectStat> HttpStore::stat(std::string_view name) {
  KVCODEC_CHECK(validate_name(name));
  KVCODEC_TRY(const HttpReply reply,
              http_with_retries(
                  *client_, Deadline::in(options_.deadline), what("stat", name),
                  [&]() -> Result<HttpRequest> { return request("HEAD", name); },
                  [&](const Status& transfer, const HttpReply& seen) -> Status {
                    KVCODEC_CHECK(transfer);
                    return seen.status == 200 ? ok_status() : Status(refused(name, seen));
                  }));
  const auto bytes = reply.number("content-length");
  if (!bytes) {
    return make_error(ErrorCode::corrupt, "{}: the server gives no length", what("stat", name));
  }
  return ObjectStat{std::string(name), *bytes,
                    reply.last_modified.value_or(std::chrono::system_clock::time_point())};
}

Status HttpStore::put(std::string_view name, std::span<const std::byte>) {
  KVCODEC_CHECK(validate_name(name));
  return read_only("put");
}

Result<std::vector<ObjectStat>> HttpStore::list(std::string_view) { return read_only("list"); }

Status HttpStore::remove(std::string_view name) {
  KVCODEC_CHECK(validate_name(name));
  return read_only("remove");
}

}  // namespace kvcodec
