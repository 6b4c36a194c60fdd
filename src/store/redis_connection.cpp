// SPDX-License-Identifier: Apache-2.0
#include "store/redis_connection.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/error.h"

namespace kvcodec {
namespace {

constexpr size_t kInputBytes = size_t{64} << 10;
constexpr size_t kOutputBytes = size_t{64} << 10;
constexpr int kMaxDepth = 4;

Error bad_reply(std::string_view what) {
  return make_error(ErrorCode::corrupt, "the server's reply is not RESP: {}", what);
}

// What a server sent, for a message: short, and printable.
std::string printable(std::string_view text) {
  std::string shown(text.substr(0, 120));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return shown;
}

void append_bulk(std::string& out, std::string_view bytes) {
  fmt::format_to(std::back_inserter(out), "${}\r\n", bytes.size());
  out += bytes;
  out += "\r\n";
}

}  // namespace

Error redis_error(std::string_view what, std::string_view reply) {
  static constexpr std::string_view kTransient[] = {"LOADING",    "BUSY",        "TRYAGAIN",
                                                    "MASTERDOWN", "CLUSTERDOWN", "READONLY",
                                                    "NOREPLICAS", "UNBLOCKED",   "BUSYKEY"};
  const std::string_view word = reply.substr(0, reply.find(' '));
  if (word == "MOVED" || word == "ASK") {
    return make_error(
        ErrorCode::unsupported,
        "{}: the server is a part of a cluster and the key is elsewhere ({}); use the "
        "cluster's proxy or one server",
        what, printable(reply));
  }
  const bool transient =
      std::find(std::begin(kTransient), std::end(kTransient), word) != std::end(kTransient);
  return make_error(transient ? ErrorCode::unavailable : ErrorCode::io, "{}: the server says: {}",
                    what, printable(reply));
}

RedisConnection::RedisConnection(NetStream stream) : stream_(std::move(stream)), in_(kInputBytes) {}

Result<RedisConnection> RedisConnection::open(const NetAddress& address, const RedisLogin& login,
                                              Deadline deadline,
                                              std::chrono::milliseconds stall_timeout) {
  KVCODEC_TRY(NetStream stream, NetStream::connect(address, deadline, stall_timeout));
  RedisConnection connection(std::move(stream));
  KVCODEC_CHECK(connection.log_in(login, deadline));
  return connection;
}

Status RedisConnection::log_in(const RedisLogin& login, Deadline deadline) {
  std::vector<std::string_view> steps;
  if (!login.password.empty()) {
    steps.emplace_back("log in");
    if (login.user.empty()) {
      KVCODEC_CHECK(send({"AUTH", login.password}, deadline));
    } else {
      KVCODEC_CHECK(send({"AUTH", login.user, login.password}, deadline));
    }
  }
  if (login.database != 0) {
    steps.emplace_back("select the database");
    KVCODEC_CHECK(send({"SELECT", std::to_string(login.database)}, deadline));
  }
  // So that a server that wants a password says so now.
  steps.emplace_back("greet");
  KVCODEC_CHECK(send({"PING"}, deadline));
  KVCODEC_CHECK(flush(deadline));
  for (const std::string_view step : steps) {
    KVCODEC_TRY(const RedisReply reply, read(deadline));
    if (reply.kind == RedisReply::Kind::error) return redis_error(step, reply.bytes);
    if (reply.kind != RedisReply::Kind::text) return bad_reply("expected a simple string");
  }
  return ok_status();
}

Status RedisConnection::send(std::initializer_list<std::string_view> arguments, Deadline deadline) {
  fmt::format_to(std::back_inserter(out_), "*{}\r\n", arguments.size());
  for (const std::string_view argument : arguments) append_bulk(out_, argument);
  return out_.size() < kOutputBytes ? ok_status() : flush(deadline);
}

Status RedisConnection::send(std::span<const std::string> arguments, Deadline deadline) {
  fmt::format_to(std::back_inserter(out_), "*{}\r\n", arguments.size());
  for (const std::string& argument : arguments) append_bulk(out_, argument);
  return out_.size() < kOutputBytes ? ok_status() : flush(deadline);
}

Status RedisConnection::send(std::initializer_list<std::string_view> arguments,
                             std::span<const std::byte> body, Deadline deadline) {
  fmt::format_to(std::back_inserter(out_), "*{}\r\n", arguments.size() + 1);
  for (const std::string_view argument : arguments) append_bulk(out_, argument);
  fmt::format_to(std::back_inserter(out_), "${}\r\n", body.size());
  if (body.size() < kOutputBytes) {
    out_.append(reinterpret_cast<const char*>(body.data()), body.size());
  } else {
    KVCODEC_CHECK(flush(deadline));
    KVCODEC_CHECK(stream_.write_all(body, deadline));
  }
  out_ += "\r\n";
  return out_.size() < kOutputBytes ? ok_status() : flush(deadline);
}

Status RedisConnection::flush(Deadline deadline) {
  KVCODEC_CHECK(stream_.write_all(std::as_bytes(std::span(out_)), deadline));
  out_.clear();
  return ok_status();
}

Status RedisConnection::fill(Deadline deadline) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (end_ == in_.size()) {
    std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == in_.size()) return bad_reply(fmt::format("a line of more than {} bytes", in_.size()));
  KVCODEC_TRY(const size_t n, stream_.read_some(std::span(in_).subspan(end_), deadline));
  end_ += n;
  return ok_status();
}

// Valid until the next read.
Result<std::string_view> RedisConnection::read_line(Deadline deadline) {
  size_t searched = 0;
  for (;;) {
    const std::string_view unread(reinterpret_cast<const char*>(in_.data()) + begin_,
                                  end_ - begin_);
    const size_t at = unread.find("\r\n", searched);
    if (at != std::string_view::npos) {
      begin_ += at + 2;
      if (at == 0) return bad_reply("an empty line");
      return unread.substr(0, at);
    }
    searched = unread.empty() ? 0 : unread.size() - 1;
    KVCODEC_CHECK(fill(deadline));
  }
}

// The number after the type byte: -1 to `most`.
Result<int64_t> RedisConnection::read_length(std::string_view line, int64_t most) const {
  int64_t value = 0;
  const auto [end, failed] = std::from_chars(line.data() + 1, line.data() + line.size(), value);
  if (failed != std::errc{} || end != line.data() + line.size() || value < -1 || value > most) {
    return bad_reply(
        fmt::format("length '{}'; expected -1 to {}", printable(line.substr(1)), most));
  }
  return value;
}

Status RedisConnection::read_exactly(std::span<std::byte> out, Deadline deadline) {
  for (;;) {
    const size_t buffered = std::min(out.size(), end_ - begin_);
    if (buffered > 0) std::memcpy(out.data(), in_.data() + begin_, buffered);
    begin_ += buffered;
    out = out.subspan(buffered);
    if (out.empty()) return ok_status();
    // A small rest by way of the buffer, with what comes behind it.
    if (out.size() < in_.size() / 4) {
      KVCODEC_CHECK(fill(deadline));
      continue;
    }
    KVCODEC_TRY(const size_t n, stream_.read_some(out, deadline));
    out = out.subspan(n);
  }
}

Status RedisConnection::read_line_end(Deadline deadline) {
  char end[2];
  KVCODEC_CHECK(read_exactly(std::as_writable_bytes(std::span(end)), deadline));
  return end[0] == '\r' && end[1] == '\n' ? ok_status()
                                          : bad_reply("a string does not end in CRLF");
}

Result<RedisReply> RedisConnection::read(Deadline deadline) {
  size_t budget = kMaxReplyBytes;
  return read_value(0, budget, deadline);
}

Result<RedisReply> RedisConnection::read_value(int depth, size_t& budget, Deadline deadline) {
  KVCODEC_TRY(const std::string_view line, read_line(deadline));
  RedisReply reply;
  switch (line[0]) {
    case '+':
    case '-':
      reply.kind = line[0] == '+' ? RedisReply::Kind::text : RedisReply::Kind::error;
      reply.bytes = line.substr(1);
      return reply;
    case ':': {
      reply.kind = RedisReply::Kind::number;
      const auto [end, failed] =
          std::from_chars(line.data() + 1, line.data() + line.size(), reply.number);
      if (failed != std::errc{} || end != line.data() + line.size()) {
        return bad_reply(fmt::format("number '{}'", printable(line.substr(1))));
      }
      return reply;
    }
    case '$': {
      KVCODEC_TRY(const int64_t n, read_length(line, static_cast<int64_t>(budget)));
      if (n < 0) return reply;
      reply.kind = RedisReply::Kind::bulk;
      budget -= static_cast<size_t>(n);
      reply.bytes.resize(static_cast<size_t>(n));
      KVCODEC_CHECK(read_exactly(std::as_writable_bytes(std::span(reply.bytes)), deadline));
      KVCODEC_CHECK(read_line_end(deadline));
      return reply;
    }
    case '*': {
      KVCODEC_TRY(const int64_t n, read_length(line, kMaxReplyItems));
      if (n < 0) return reply;
      reply.kind = RedisReply::Kind::array;
      if (depth == kMaxDepth) return bad_reply("arrays within arrays within arrays");
      for (int64_t i = 0; i < n; ++i) {
        constexpr size_t kItemBytes =
            16;  // an item costs this at least, so that empty ones end too
        if (budget < kItemBytes) return bad_reply("an array of too many bytes");
        budget -= kItemBytes;
        KVCODEC_TRY(RedisReply item, read_value(depth + 1, budget, deadline));
        reply.items.push_back(std::move(item));
      }
      return reply;
    }
    default: return bad_reply(fmt::format("it begins with '{}'", printable(line.substr(0, 1))));
  }
}

Result<std::optional<size_t>> RedisConnection::read_into(std::span<std::byte> out,
                                                         Deadline deadline) {
  KVCODEC_TRY(const std::string_view line, read_line(deadline));
  if (line[0] == '-') return redis_error("read", line.substr(1));
  if (line[0] != '$') return bad_reply("expected a string");
  KVCODEC_TRY(const int64_t n, read_length(line, static_cast<int64_t>(out.size())));
  if (n < 0) return std::optional<size_t>{};
  KVCODEC_CHECK(read_exactly(out.first(static_cast<size_t>(n)), deadline));
  KVCODEC_CHECK(read_line_end(deadline));
  return std::optional<size_t>(static_cast<size_t>(n));
}

}  // namespace kvcodec
