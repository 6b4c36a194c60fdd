// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/store.h"
#include "store/retry.h"

namespace kvcodec {

struct HttpRequest {
  std::string method;  // GET, HEAD, PUT, POST, DELETE
  std::string url;
  std::vector<std::string> headers;  // "Name: value"
  std::span<const std::byte> body;   // borrowed until perform returns
  // Where the body of a reply with status 200 or 206 goes, if `wants_bytes`: of a 206 all of it,
  // and no more than there is room; of a 200 what follows the first `skip` bytes, the transfer
  // being cut off once `sink` is full. Any other body is text.
  bool wants_bytes = false;
  std::span<std::byte> sink;
  uint64_t skip = 0;
  size_t max_text = size_t{64} << 10;
  bool follow_redirects = false;  // at most 5, never from https to http
};

struct HttpReply {
  int status = 0;                                           // 0: none came
  std::map<std::string, std::string, std::less<>> headers;  // names in lower case
  size_t sink_bytes = 0;
  std::string text;
  std::optional<std::chrono::system_clock::time_point> date, last_modified;

  std::string_view header(std::string_view name) const;  // empty where it is not there
  // A header that must be a number, in full; none where it is not one.
  std::optional<uint64_t> number(std::string_view name) const;
};

// HTTP/1.1 over libcurl: any number of threads at once, each call on a connection of its own that
// is kept open for the next one.
class HttpClient {
 public:
  // unsupported where the build has no libcurl.
  static Result<std::unique_ptr<HttpClient>> make(const StoreOptions& options);
  virtual ~HttpClient() = default;

  // Basic authentication for every request.
  virtual void set_login(std::string user, std::string password) = 0;
  // One request. Where it fails `reply` holds what had come until then: unavailable where trying
  // again may help, corrupt where the reply is too large, io where a certificate is refused.
  virtual Status perform(const HttpRequest& request, HttpReply& reply, Deadline deadline) = 0;
};

// Repeats a request until `judge` is content: it sees how the transfer ended and what came, and
// asks for another attempt by an error that is unavailable. `what` names the operation in errors;
// Retry-After is heeded.
using HttpPrepare = std::function<Result<HttpRequest>()>;
using HttpJudge = std::function<Status(const Status& transfer, const HttpReply& reply)>;
Result<HttpReply> http_with_retries(HttpClient& client, Deadline deadline, std::string_view what,
                                    const HttpPrepare& prepare, const HttpJudge& judge);

// GET of a range of one object, resumed where it was cut off if the server names the version by an
// entity tag. `prepare` makes the request with these headers more; `refused` makes the error of a
// status that is no success.
struct HttpRange {
  std::function<Result<HttpRequest>(std::vector<std::string> headers)> prepare;
  std::function<Error(const HttpReply&)> refused;
  // Looks at a whole object that came in one reply; may be empty.
  std::function<Status(std::span<const std::byte>, const HttpReply&)> check_whole;
};
Result<size_t> http_get_range(HttpClient& client, Deadline deadline, std::string_view what,
                              const HttpRange& range, std::span<std::byte> out, uint64_t offset);

// Statuses that say: later.
bool is_transient_status(int status);

}  // namespace kvcodec
