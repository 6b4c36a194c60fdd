// SPDX-License-Identifier: Apache-2.0
#include "store/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "kvcodec/version.h"

namespace kvcodec {
namespace {

constexpr size_t kMaxHeaderBytes = size_t{64} << 10;
constexpr long kBufferBytes = 512 << 10;  // libcurl's largest

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

std::string lower(std::string_view text) {
  std::string lowered(text);
  for (char& c : lowered) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lowered;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::strchr(" \t\r\n", text.front()) != nullptr) text.remove_prefix(1);
  while (!text.empty() && std::strchr(" \t\r\n", text.back()) != nullptr) text.remove_suffix(1);
  return text;
}

// One transfer: what libcurl's callbacks need.
struct Transfer {
  const HttpRequest& request;
  HttpReply& reply;
  uint64_t to_skip;
  size_t header_bytes = 0;
  bool full = false;       // cut off by us: there is all we wanted
  bool too_large = false;  // cut off by us: it is more than it may be

  bool take(std::string_view bytes) {
    if (!request.wants_bytes || (reply.status != 200 && reply.status != 206)) {
      too_large = bytes.size() > request.max_text - reply.text.size();
      if (!too_large) reply.text += bytes;
      return !too_large;
    }
    if (reply.status == 200) {
      const size_t skipped = static_cast<size_t>(std::min<uint64_t>(to_skip, bytes.size()));
      to_skip -= skipped;
      bytes.remove_prefix(skipped);
    }
    const size_t n = std::min(bytes.size(), request.sink.size() - reply.sink_bytes);
    if (n > 0) std::memcpy(request.sink.data() + reply.sink_bytes, bytes.data(), n);
    reply.sink_bytes += n;
    if (reply.status == 200) {
      full = to_skip == 0 && reply.sink_bytes == request.sink.size();
      return !full;
    }
    too_large = n < bytes.size();
    return !too_large;
  }

  bool take_header(std::string_view line) {
    header_bytes += line.size();
    too_large = header_bytes > kMaxHeaderBytes;
    if (too_large) return false;
    if (line.starts_with("HTTP/")) {  // of a redirection, or of the reply itself
      reply.headers.clear();
      const size_t space = std::min(line.find(' '), line.size());
      reply.status = std::atoi(std::string(line.substr(space)).c_str());
      return true;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return true;
    const std::string name = lower(trim(line.substr(0, colon)));
    const std::string_view value = trim(line.substr(colon + 1));
    // One that comes twice with different values cannot be trusted: it matches nothing.
    const auto [at, added] = reply.headers.emplace(name, value);
    if (!added && at->second != value) at->second = "(two values)";
    return true;
  }
};

size_t on_body(char* bytes, size_t size, size_t count, void* transfer) {
  const bool more = static_cast<Transfer*>(transfer)->take({bytes, size * count});
  return more ? size * count : CURL_WRITEFUNC_ERROR;
}

size_t on_header(char* bytes, size_t size, size_t count, void* transfer) {
  const bool more = static_cast<Transfer*>(transfer)->take_header({bytes, size * count});
  return more ? size * count : 0;
}

std::optional<std::chrono::system_clock::time_point> parse_date(std::string_view text) {
  const time_t time = text.empty() ? -1 : curl_getdate(std::string(text).c_str(), nullptr);
  if (time < 0) return std::nullopt;
  return std::chrono::system_clock::from_time_t(time);
}

class CurlClient final : public HttpClient {
 public:
  explicit CurlClient(const StoreOptions& options) : options_(options) {}
  ~CurlClient() override {
    for (CURL* handle : idle_) curl_easy_cleanup(handle);
  }
  CurlClient(const CurlClient&) = delete;
  CurlClient& operator=(const CurlClient&) = delete;

  void set_login(std::string user, std::string password) override {
    user_ = std::move(user);
    password_ = std::move(password);
  }

  Status perform(const HttpRequest& request, HttpReply& reply, Deadline deadline) override {
    reply = {};
    KVCODEC_TRY(CURL* const handle, borrow(deadline));
    Status status = run(handle, request, reply, deadline);
    give_back(handle);
    reply.date = parse_date(reply.header("date"));
    reply.last_modified = parse_date(reply.header("last-modified"));
    return status;
  }

 private:
  Result<CURL*> borrow(Deadline deadline) {
    std::unique_lock lock(mutex_);
    const auto is_free = [&] { return on_loan_ < options_.connections; };
    if (deadline.endless()) {
      returned_.wait(lock, is_free);
    } else if (!returned_.wait_until(lock, deadline.at(), is_free)) {
      return make_error(ErrorCode::unavailable,
                        "all {} connections were busy until the deadline was over",
                        options_.connections);
    }
    CURL* handle = nullptr;
    if (!idle_.empty()) {
      handle = idle_.back();
      idle_.pop_back();
    } else if ((handle = curl_easy_init()) == nullptr) {
      return make_error(ErrorCode::out_of_memory, "libcurl has no handle for us");
    }
    ++on_loan_;
    return handle;
  }

  void give_back(CURL* handle) {
    {
      const std::lock_guard guard(mutex_);
      --on_loan_;
      idle_.push_back(handle);
    }
    returned_.notify_one();
  }

  void set_limits(CURL* handle, Deadline deadline) const {
    using std::chrono::milliseconds;
    const auto left = std::max(deadline.remaining(), milliseconds(1));
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS,
                     deadline.endless() ? 0L : static_cast<long>(left.count()));
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS,
                     static_cast<long>(std::min(left, options_.connect_timeout).count()));
    const auto stall = std::chrono::ceil<std::chrono::seconds>(options_.stall_timeout);
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, static_cast<long>(stall.count()));
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, kBufferBytes);
    curl_easy_setopt(handle, CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
    curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    if (!options_.ca_file.empty()) {
      curl_easy_setopt(handle, CURLOPT_CAINFO, options_.ca_file.c_str());
    }
  }

  void set_request(CURL* handle, const HttpRequest& request, curl_slist* headers) const {
    curl_easy_setopt(handle, CURLOPT_URL, request.url.c_str());
    curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(handle, CURLOPT_USERAGENT, "kvcodec/" KVCODEC_VERSION_STRING);
    if (request.method == "HEAD") {
      curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
    } else if (request.method == "PUT" || request.method == "POST") {
      curl_easy_setopt(
          handle, CURLOPT_POSTFIELDS,
          reinterpret_cast<const char*>(request.body.empty() ? nullptr : request.body.data()));
      curl_easy_setopt(handle, CURLOPT_POST, 1L);
      curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE,
                       static_cast<curl_off_t>(request.body.size()));
      if (request.body.empty()) curl_easy_setopt(handle, CURLOPT_POSTFIELDS, "");
      if (request.method == "PUT") curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, "PUT");
    } else if (request.method != "GET") {
      curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
    }
    if (!user_.empty() || !password_.empty()) {
      curl_easy_setopt(handle, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
      curl_easy_setopt(handle, CURLOPT_USERNAME, user_.c_str());
      curl_easy_setopt(handle, CURLOPT_PASSWORD, password_.c_str());
    }
    if (request.follow_redirects) {
      curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 1L);
      curl_easy_setopt(handle, CURLOPT_MAXREDIRS, 5L);
      curl_easy_setopt(handle, CURLOPT_REDIR_PROTOCOLS_STR,
                       request.url.starts_with("https:") ? "https" : "http,https");
    }
  }

  Status run(CURL* handle, const HttpRequest& request, HttpReply& reply, Deadline deadline) const {
    // Resetting keeps the connection, and what is known of hosts and TLS sessions.
    curl_easy_reset(handle);
    Transfer transfer{request, reply, request.skip};
    char text[CURL_ERROR_SIZE] = "";
    std::unique_ptr<curl_slist, FreeList> headers;
    const auto add_header = [&](const char* header) {
      headers.reset(curl_slist_append(headers.release(), header));
    };
    // Without these libcurl adds some of its own.
    add_header("Expect:");
    add_header("Content-Type:");
    for (const std::string& header : request.headers) add_header(header.c_str());
    set_limits(handle, deadline);
    set_request(handle, request, headers.get());
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, text);
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(handle, CURLOPT_HEADERDATA, &transfer);
    curl_easy_setopt(handle, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    const CURLcode code = curl_easy_perform(handle);
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, nullptr);
    if (transfer.too_large) {
      return make_error(ErrorCode::corrupt, "the server sends more than was asked for");
    }
    if (code == CURLE_OK || transfer.full) return ok_status();
    const char* why = text[0] != '\0' ? text : curl_easy_strerror(code);
    switch (code) {
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CACERT_BADFILE:
      case CURLE_SSL_ISSUER_ERROR: return make_error(ErrorCode::io, "certificate refused: {}", why);
      case CURLE_URL_MALFORMAT:
      case CURLE_UNSUPPORTED_PROTOCOL:
      case CURLE_TOO_MANY_REDIRECTS: return make_error(ErrorCode::io, "{}", why);
      case CURLE_OUT_OF_MEMORY: return make_error(ErrorCode::out_of_memory, "{}", why);
      case CURLE_WEIRD_SERVER_REPLY:
      case CURLE_BAD_CONTENT_ENCODING: return make_error(ErrorCode::corrupt, "{}", why);
      default: return make_error(ErrorCode::unavailable, "{}", why);
    }
  }

  const StoreOptions options_;
  std::string user_, password_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<CURL*> idle_;
  uint32_t on_loan_ = 0;
};

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::make(const StoreOptions& options) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready != CURLE_OK) {
    return make_error(ErrorCode::internal, "libcurl: {}", curl_easy_strerror(ready));
  }
  return std::unique_ptr<HttpClient>(std::make_unique<CurlClient>(options));
}

}  // namespace kvcodec
