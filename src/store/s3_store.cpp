// SPDX-License-Identifier: Apache-2.0
#include "store/s3_store.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "kvcodec/key.h"
#include "store/s3_credentials.h"
#include "store/store_name.h"

namespace kvcodec {
namespace {

using std::chrono::system_clock;

constexpr size_t kMaxListingBytes = size_t{8} << 20;
// Clocks that differ by less than this are not to blame: S3 allows 15 minutes.
constexpr int64_t kClockTolerance = 120;

Error no_object(std::string_view name) {
  return make_error(ErrorCode::not_found, "no object '{}' in the S3 store", name);
}

// What a server sent, for a message.
std::string printable(std::string_view text) {
  std::string shown(text.substr(0, 200));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return shown;
}

bool is_transient_code(std::string_view code) {
  static constexpr std::string_view kCodes[] = {
      "SlowDown",         "InternalError", "RequestTimeout",       "ServiceUnavailable",
      "OperationAborted", "Throttling",    "RequestLimitExceeded", "ThrottlingException"};
  return std::find(std::begin(kCodes), std::end(kCodes), code) != std::end(kCodes);
}

bool is_bucket_name(std::string_view bucket) {
  return bucket.size() >= 3 && bucket.size() <= 63 &&
         std::all_of(bucket.begin(), bucket.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
         });
}

}  // namespace

Result<std::unique_ptr<S3Store>> S3Store::open(const StoreUri& uri, StoreOptions options) {
  Config config{.shown = uri.shown};
  UriParams params(uri);
  KVCODEC_CHECK(params.take_bytes("multipart_bytes", config.multipart_bytes));
  KVCODEC_CHECK(params.take_bytes("part_bytes", config.part_bytes));
  KVCODEC_CHECK(params.take_bool("anonymous", config.anonymous));
  config.profile = params.take("profile").value_or("");
  const auto endpoint = params.take("endpoint"), region = params.take("region");
  bool path_style = endpoint.has_value() || uri.host.find('.') != std::string::npos;
  KVCODEC_CHECK(params.take_bool("path_style", path_style));
  KVCODEC_CHECK(params.take_network(options));
  KVCODEC_CHECK(params.finish());
  if (!is_bucket_name(uri.host) || uri.port != 0 || !uri.user.empty() || !uri.password.empty()) {
    return make_error(ErrorCode::invalid_argument,
                      "store URI '{}': expected s3://bucket/prefix with a bucket of 3 to 63 bytes "
                      "of [a-z0-9.-]; keys come from the environment or ~/.aws",
                      uri.shown);
  }
  constexpr uint64_t kLeastPart = uint64_t{64} << 10, kMostPart = uint64_t{1} << 32;
  if (config.part_bytes < kLeastPart || config.part_bytes > kMostPart ||
      config.multipart_bytes > kMostPart) {
    return make_error(ErrorCode::invalid_argument,
                      "store URI '{}': expected part_bytes of 64K to 4G and multipart_bytes of at "
                      "most 4G",
                      uri.shown);
  }
  if (options.max_bytes > 0) {
    return make_error(ErrorCode::unsupported,
                      "store '{}': max_bytes: a bucket bounds itself by lifecycle rules, or "
                      "kvcodec gc does",
                      uri.shown);
  }
  for (std::string_view rest = uri.path; !rest.empty();) {
    const size_t slash = std::min(rest.find('/'), rest.size());
    if (slash > 0) config.prefix += std::string(rest.substr(0, slash)) + "/";
    rest.remove_prefix(std::min(slash + 1, rest.size()));
  }
  KVCODEC_TRY(auto client, HttpClient::make(options));
  S3Profile profile;
  if (!config.anonymous) {
    KVCODEC_TRY(profile, load_s3_profile(config.profile));
    if (profile.credentials.anonymous()) {
      return make_error(ErrorCode::invalid_argument,
                        "store '{}': no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                        "write ~/.aws/credentials, or ask for anonymous=true",
                        uri.shown);
    }
  }
  config.region = region.value_or(profile.region);
  if (config.region.empty()) config.region = "us-east-1";
  KVCODEC_CHECK(set_endpoint(uri, endpoint.value_or(profile.endpoint), path_style, config));
  return std::unique_ptr<S3Store>(
      new S3Store(std::move(config), std::move(options), std::move(client), profile.credentials));
}

Status S3Store::set_endpoint(const StoreUri& uri, const std::string& endpoint, bool path_style,
                             Config& config) {
  const std::string text =
      endpoint.empty() ? fmt::format("https://s3.{}.amazonaws.com", config.region) : endpoint;
  KVCODEC_TRY(const StoreUri parsed, parse_store_uri(text));
  const bool https = parsed.scheme == "https";
  if ((!https && parsed.scheme != "http") || parsed.host.empty() || !parsed.params.empty() ||
      !parsed.user.empty() || !(parsed.path.empty() || parsed.path == "/")) {
    return make_error(ErrorCode::invalid_argument,
                      "store URI '{}': endpoint: expected http://host or https://host with a port "
                      "at most, found '{}'",
                      uri.shown, parsed.shown);
  }
  std::string host =
      parsed.host.find(':') == std::string::npos ? parsed.host : "[" + parsed.host + "]";
  if (path_style) {
    config.base_path = "/" + uri.host;
  } else {
    host = uri.host + "." + host;
  }
  // As HTTP clients send it: without the port that is the scheme's own.
  if (parsed.port != 0 && parsed.port != (https ? 443 : 80)) {
    host += ":" + std::to_string(parsed.port);
  }
  config.host = host;
  config.base_url = parsed.scheme + "://" + host;
  return ok_status();
}

std::string S3Store::what(std::string_view verb, std::string_view name) const {
  return fmt::format("{} '{}' in {}", verb, name, config_.shown);
}

std::string S3Store::path_of(std::string_view name) const {
  return config_.base_path + "/" + percent_encode(config_.prefix + std::string(name), true);
}

HttpRequest S3Store::request(std::string method, const std::string& path, const Part& part) {
  static const std::string kEmpty = to_hex(sha256({}));
  S3Credentials credentials;
  {
    const std::lock_guard guard(mutex_);
    credentials = credentials_;
  }
  const S3SignedRequest to_sign{method,       config_.host,
                                path,         part.query,
                                part.headers, part.sha256.empty() ? kEmpty : part.sha256};
  HttpRequest made;
  made.method = std::move(method);
  made.url = config_.base_url + path;
  if (!part.query.empty()) made.url += "?" + s3_query(part.query);
  made.headers = s3_sign(to_sign, credentials, config_.region,
                         system_clock::now() + std::chrono::seconds(clock_offset_s_.load()));
  made.body = part.body;
  return made;
}

bool S3Store::mend_clock(const HttpReply& reply) {
  if (!reply.date) return false;
  const int64_t offset =
      std::chrono::duration_cast<std::chrono::seconds>(*reply.date - system_clock::now()).count();
  const int64_t before = clock_offset_s_.exchange(offset);
  return std::abs(offset - before) > kClockTolerance;
}

bool S3Store::mend_credentials() {
  if (config_.anonymous) return false;
  const auto profile = load_s3_profile(config_.profile);
  if (!profile.ok() || profile->credentials.anonymous()) return false;
  const std::lock_guard guard(mutex_);
  if (profile->credentials == credentials_) return false;
  credentials_ = profile->credentials;
  return true;
}

Error S3Store::refused(std::string_view name, const HttpReply& reply) {
  const S3ErrorReply error = parse_s3_error(reply.text);
  if (reply.status == 404 && error.code != "NoSuchBucket") return no_object(name);
  std::string text = fmt::format("the server answers status {}", reply.status);
  if (!error.code.empty()) {
    text += fmt::format(", {}: {}", printable(error.code), printable(error.message));
  }
  if (reply.status == 403 && (error.code.empty() || error.code == "RequestTimeTooSkewed")) {
    // HEAD has no body that would say what is wrong.
    if (mend_clock(reply)) {
      return make_error(ErrorCode::unavailable, "{}; the clocks differ by {} s", text,
                        clock_offset_s_.load());
    }
    if (!error.code.empty()) {
      return make_error(ErrorCode::io, "{}; set this machine's clock", text);
    }
  }
  if (error.code == "ExpiredToken" || error.code == "InvalidAccessKeyId") {
    return make_error(mend_credentials() ? ErrorCode::unavailable : ErrorCode::io, "{}", text);
  }
  if (reply.status == 301 || reply.status == 307 || reply.status == 308) {
    return make_error(ErrorCode::io, "{}: the bucket is elsewhere (region '{}')", text,
                      printable(reply.header("x-amz-bucket-region")));
  }
  const bool transient = is_transient_status(reply.status) || is_transient_code(error.code);
  return make_error(transient ? ErrorCode::unavailable : ErrorCode::io, "{}", text);
}

Result<HttpReply> S3Store::call(std::string_view verb, std::string_view name, std::string method,
                                const std::string& path, const Part& part, Deadline deadline) {
  return http_with_retries(
      *client_, deadline, what(verb, name),
      [&]() -> Result<HttpRequest> {
        HttpRequest made = request(method, path, part);
        if (verb == "list") made.max_text = kMaxListingBytes;
        return made;
      },
      [&](const Status& transfer, const HttpReply& reply) -> Status {
        KVCODEC_CHECK(transfer);
        if (reply.status == 200 || reply.status == 204) return ok_status();
        return refused(name, reply);
      });
}

Result<size_t> S3Store::get(std::string_view name, std::span<std::byte> out, uint64_t offset) {
  KVCODEC_CHECK(validate_name(name));
  if (out.empty()) {
    KVCODEC_CHECK(stat(name));
    return size_t{0};
  }
  const std::string path = path_of(name);
  HttpRange range;
  range.prepare = [&](std::vector<std::string> headers) -> Result<HttpRequest> {
    HttpRequest made = request("GET", path, {.headers = {"x-amz-checksum-mode: ENABLED"}});
    made.headers.insert(made.headers.end(), headers.begin(), headers.end());
    return made;
  };
  range.refused = [&](const HttpReply& reply) { return refused(name, reply); };
  range.check_whole = [&](std::span<const std::byte> bytes, const HttpReply& reply) -> Status {
    const std::string_view expected = reply.header("x-amz-checksum-sha256");
    // A hash of the parts' hashes, "...-3", is not one of the object.
    if (expected.empty() || expected.find('-') != std::string_view::npos) return ok_status();
    const std::string found = base64(sha256(bytes));
    if (found == expected) return ok_status();
    return make_error(ErrorCode::corrupt, "object '{}': SHA-256 {}; the server has {}", name, found,
                      printable(expected));
  };
  return http_get_range(*client_, deadline(), what("get", name), range, out, offset);
}

Result<ObjectStat> S3Store::stat(std::string_view name) {
  KVCODEC_CHECK(validate_name(name));
  return stat_until(name, deadline());
}

Result<ObjectStat> S3Store::stat_until(std::string_view name, Deadline deadline) {
  KVCODEC_TRY(const HttpReply reply, call("stat", name, "HEAD", path_of(name), {}, deadline));
  const auto bytes = reply.number("content-length");
  if (!bytes) {
    return make_error(ErrorCode::corrupt, "{}: the server gives no length", what("stat", name));
  }
  return ObjectStat{std::string(name), *bytes,
                    reply.last_modified.value_or(system_clock::time_point())};
}

Result<std::vector<ObjectStat>> S3Store::list(std::string_view prefix) {
  std::vector<ObjectStat> stats;
  const Deadline until = deadline();
  std::string token;
  for (;;) {
    Query query = {
        {"list-type", "2"}, {"max-keys", "1000"}, {"prefix", config_.prefix + std::string(prefix)}};
    if (!token.empty()) query.emplace_back("continuation-token", token);
    const std::string path = config_.base_path.empty() ? "/" : config_.base_path;
    KVCODEC_TRY(const HttpReply reply, call("list", "*", "GET", path, {.query = query}, until));
    auto page = parse_s3_listing(reply.text);
    if (!page.ok()) {
      return make_error(page.error().code, "{}: {}", what("list", "*"), page.error().message);
    }
    for (const S3Listing::Object& object : page->objects) {
      std::string_view name = object.key;
      if (!name.starts_with(config_.prefix)) {
        return make_error(ErrorCode::corrupt, "{}: the server lists '{}', without the prefix",
                          what("list", "*"), printable(name));
      }
      name.remove_prefix(config_.prefix.size());
      if (!validate_name(name).ok()) continue;  // somebody else's object
      stats.push_back({std::string(name), object.bytes, object.modified});
    }
    if (!page->truncated) break;
    if (page->next_token == token) {
      return make_error(ErrorCode::corrupt, "{}: the listing does not go on", what("list", "*"));
    }
    token = page->next_token;
    if (until.over()) {
      return make_error(ErrorCode::unavailable, "{}: the deadline is over after {} objects",
                        what("list", "*"), stats.size());
    }
  }
  std::sort(stats.begin(), stats.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return stats;
}

Status S3Store::remove(std::string_view name) {
  KVCODEC_CHECK(validate_name(name));
  const Deadline until = deadline();
  KVCODEC_CHECK(stat_until(name, until));
  KVCODEC_CHECK(call("remove", name, "DELETE", path_of(name), {}, until));
  return ok_status();
}

}  // namespace kvcodec
