// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/result.h"
#include "store/net_stream.h"

namespace kvcodec {

// One reply of a server that speaks RESP2.
struct RedisReply {
  enum class Kind { text, error, number, bulk, nil, array };
  Kind kind = Kind::nil;
  std::string bytes;  // text, error, bulk
  int64_t number = 0;
  std::vector<RedisReply> items;  // array

  bool is_nil() const { return kind == Kind::nil; }
};

struct RedisLogin {
  std::string user, password;
  uint64_t database = 0;
};

// A connection to a Redis or Valkey server (protocol RESP2, the servers' documentation,
// "Serialization protocol specification"). Commands are pipelined: any number may be sent before
// their replies are read, in the same order. After an error the state of the stream is unknown, and
// the connection must be thrown away. One thread at a time.
//
// This is our own rather than hiredis: Debian's (0.14) has no TLS, and hiredis copies each value
// twice; here it goes from the socket to its place, and no reply makes us allocate what the server
// merely announces.
class RedisConnection {
 public:
  static Result<RedisConnection> open(const NetAddress& address, const RedisLogin& login,
                                      Deadline deadline, std::chrono::milliseconds stall_timeout);

  // Speaks over a stream that is open already, without logging in.
  explicit RedisConnection(NetStream stream);

  // Adds a command; the bytes of `body`, if there is one, are its last argument. They are sent from
  // where they are, so they must stay until flush returns.
  Status send(std::initializer_list<std::string_view> arguments, Deadline deadline);
  Status send(std::initializer_list<std::string_view> arguments, std::span<const std::byte> body,
              Deadline deadline);
  Status send(std::span<const std::string> arguments, Deadline deadline);
  Status flush(Deadline deadline);

  // The next reply. Its strings are at most kMaxReplyBytes in all, its arrays at most
  // kMaxReplyItems: corrupt where the server announces more. Error replies are values here.
  Result<RedisReply> read(Deadline deadline);
  // The next reply, which must be a string, into `out`: its length. none where it is nil; corrupt
  // where it is longer than `out`; an error reply as redis_error tells.
  Result<std::optional<size_t>> read_into(std::span<std::byte> out, Deadline deadline);

  // Whether the server hung up or sent what nobody asked for.
  bool is_stale() const { return begin_ != end_ || stream_.has_input(); }

  static constexpr size_t kMaxReplyBytes = size_t{4} << 20;
  static constexpr int64_t kMaxReplyItems = 1 << 16;

 private:
  Status log_in(const RedisLogin& login, Deadline deadline);
  Result<std::string_view> read_line(Deadline deadline);
  Result<int64_t> read_length(std::string_view line, int64_t most) const;
  Status read_exactly(std::span<std::byte> out, Deadline deadline);
  Status read_line_end(Deadline deadline);
  Result<RedisReply> read_value(int depth, size_t& budget, Deadline deadline);
  Status fill(Deadline deadline);

  NetStream stream_;
  std::string out_;
  std::vector<std::byte> in_;  // bytes begin_ to end_ are unread
  size_t begin_ = 0, end_ = 0;
};

// An error reply ("OOM command not allowed ...") as an Error: unavailable where the server says
// that trying again may help, io otherwise. `what` says what was being done.
Error redis_error(std::string_view what, std::string_view reply);

}  // namespace kvcodec
