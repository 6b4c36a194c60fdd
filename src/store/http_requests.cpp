// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "store/http_client.h"

namespace kvcodec {
namespace {

template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc{} && end == text.data() + text.size();
}

struct ContentRange {
  uint64_t first = 0, last = 0;
  std::optional<uint64_t> total;  // none: '*'
  bool empty = false;             // "bytes */total" of a 416
};

// "bytes 0-9/100", "bytes */100" (RFC 9110, 14.4).
std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  ContentRange range;
  const std::string_view total = text.substr(slash + 1), span = text.substr(0, slash);
  if (total != "*") {
    range.total = 0;
    if (!parse_number(total, *range.total)) return std::nullopt;
  }
  if (span == "*") {
    range.empty = true;
    return range;
  }
  const size_t dash = span.find('-');
  if (dash == std::string_view::npos || !parse_number(span.substr(0, dash), range.first) ||
      !parse_number(span.substr(dash + 1), range.last) || range.first > range.last ||
      range.last == UINT64_MAX || (range.total && range.last >= *range.total)) {
    return std::nullopt;
  }
  return range;
}

// A ranged GET over all its attempts.
class RangedGet {
 public:
  RangedGet(const HttpRange& range, std::span<std::byte> out, uint64_t offset)
      : range_(range), out_(out), offset_(offset) {}

  Result<HttpRequest> prepare() {
    const uint64_t begin = offset_ + done_;
    // The last byte that a range can name.
    const uint64_t room = out_.size() - done_ - 1;
    const uint64_t last = begin > UINT64_MAX - 1 - room ? UINT64_MAX - 1 : begin + room;
    std::vector<std::string> headers = {fmt::format("Range: bytes={}-{}", begin, last)};
    if (done_ > 0) headers.push_back(fmt::format("If-Match: {}", version_));
    KVCODEC_TRY(HttpRequest request, range_.prepare(std::move(headers)));
    request.wants_bytes = true;
    request.sink = out_.subspan(done_);
    request.skip = begin;
    return request;
  }

  Status judge(const Status& transfer, const HttpReply& reply) {
    if (reply.status == 206) return judge_part(transfer, reply);
    if (reply.status == 200) return judge_all(transfer, reply);
    KVCODEC_CHECK(transfer);
    if (reply.status == 412 && done_ > 0) return start_again("the object was replaced meanwhile");
    if (reply.status == 416) return judge_end(reply);
    return range_.refused(reply);
  }
  size_t done() const { return done_; }

 private:
  Error start_again(std::string_view why) {
    done_ = 0;
    version_.clear();
    return make_error(ErrorCode::unavailable, "{}", why);
  }

  // Keeps what came of a transfer that was cut off, if the rest can be had of the same version.
  Status keep_part(const Status& transfer, const HttpReply& reply) {
    const std::string_view tag = reply.header("etag");
    const bool strong = tag.size() > 2 && tag.front() == '"' && tag.back() == '"';
    if (transfer.ok() || transfer.error().code != ErrorCode::unavailable) return transfer;
    if (!strong || (done_ > 0 && tag != version_)) {
      done_ = 0;
      version_.clear();
      return transfer;
    }
    version_ = tag;
    done_ += reply.sink_bytes;
    return transfer;
  }

  Error bad(const HttpReply& reply) const {
    return make_error(ErrorCode::corrupt,
                      "asked for {} bytes from {}; the server answers status {}, Content-Range "
                      "'{:.60}', {} bytes",
                      out_.size() - done_, offset_ + done_, reply.status,
                      reply.header("content-range"), reply.sink_bytes);
  }

  Status judge_part(const Status& transfer, const HttpReply& reply) {
    const auto part = parse_content_range(reply.header("content-range"));
    const uint64_t room = out_.size() - done_;
    if (!part || part->empty || part->first != offset_ + done_ ||
        part->last - part->first >= room) {
      return transfer.ok() || transfer.error().code != ErrorCode::unavailable ? Status(bad(reply))
                                                                              : transfer;
    }
    if (done_ > 0 && reply.header("etag") != version_) {
      return start_again("the object was replaced meanwhile");
    }
    const uint64_t length = part->last - part->first + 1;
    KVCODEC_CHECK(keep_part(transfer, reply));
    if (reply.sink_bytes != length) return bad(reply);
    const bool whole =
        part->total ? part->last + 1 == *part->total || length == room : length == room;
    if (!whole) return bad(reply);
    const bool at_once = done_ == 0;
    done_ += static_cast<size_t>(length);
    if (range_.check_whole && at_once && offset_ == 0 && part->total == length) {
      return range_.check_whole(out_.first(done_), reply);
    }
    return ok_status();
  }

  // The server does not do ranges: what was asked for was picked out of all of it.
  Status judge_all(const Status& transfer, const HttpReply& reply) {
    if (done_ > 0 && reply.header("etag") != version_) {
      return start_again("the object was replaced meanwhile");
    }
    KVCODEC_CHECK(keep_part(transfer, reply));
    if (const auto total = reply.number("content-length")) {
      const uint64_t begin = offset_ + done_;
      const uint64_t behind = *total > begin ? *total - begin : 0;
      if (reply.sink_bytes != std::min<uint64_t>(behind, out_.size() - done_)) return bad(reply);
    }
    const bool whole =
        done_ == 0 && offset_ == 0 && reply.number("content-length") == reply.sink_bytes;
    done_ += reply.sink_bytes;
    if (range_.check_whole && whole) return range_.check_whole(out_.first(done_), reply);
    return ok_status();
  }

  // 416: the range begins at the end of the object or behind it. Some servers do not say where that
  // is, and are believed.
  Status judge_end(const HttpReply& reply) {
    const auto end = parse_content_range(reply.header("content-range"));
    if (done_ > 0 || (end && end->total && *end->total > offset_)) return bad(reply);
    return ok_status();
  }

  const HttpRange& range_;
  std::span<std::byte> out_;
  uint64_t offset_;
  size_t done_ = 0;
  std::string version_;  // the entity tag of what is there already
};

}  // namespace

std::string_view HttpReply::header(std::string_view name) const {
  const auto at = headers.find(name);
  return at == headers.end() ? std::string_view() : at->second;
}

std::optional<uint64_t> HttpReply::number(std::string_view name) const {
  uint64_t value = 0;
  if (!parse_number(header(name), value)) return std::nullopt;
  return value;
}

bool is_transient_status(int status) {
  return status == 408 || status == 425 || status == 429 || status == 500 || status == 502 ||
         status == 503 || status == 504;
}

Result<HttpReply> http_with_retries(HttpClient& client, Deadline deadline, std::string_view what,
                                    const HttpPrepare& prepare, const HttpJudge& judge) {
  constexpr uint64_t kLongestPause = 3600;
  Retry retry(deadline);
  for (;;) {
    KVCODEC_TRY(const HttpRequest request, prepare());
    HttpReply reply;
    const Status transfer = client.perform(request, reply, deadline);
    Status judged = judge(transfer, reply);
    if (judged.ok()) return reply;
    Error& error = judged.error();
    if (error.code == ErrorCode::not_found) return error;
    error.message = fmt::format("{}: {}", what, error.message);
    if (error.code != ErrorCode::unavailable) return error;
    const uint64_t pause = std::min(reply.number("retry-after").value_or(0), kLongestPause);
    if (!retry.wait(std::chrono::seconds(pause))) return retry.give_up(error);
  }
}

Result<size_t> http_get_range(HttpClient& client, Deadline deadline, std::string_view what,
                              const HttpRange& range, std::span<std::byte> out, uint64_t offset) {
  RangedGet get(range, out, offset);
  const auto reply = http_with_retries(
      client, deadline, what, [&] { return get.prepare(); },
      [&](const Status& transfer, const HttpReply& seen) { return get.judge(transfer, seen); });
  if (!reply.ok()) return reply.error();
  return get.done();
}

}  // namespace kvcodec
