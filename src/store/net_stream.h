// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kvcodec/result.h"
#include "store/posix_file.h"
#include "store/retry.h"

struct ssl_st;
struct ssl_ctx_st;

namespace kvcodec {

// What TLS connections of one store share. Thread-safe once made.
class TlsContext {
 public:
  // Trusts the certificates in `ca_file`, or the system's where it is empty.
  static Result<std::shared_ptr<TlsContext>> make(const std::string& ca_file);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ssl_ctx_st* get() const { return context_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* context_;
};

struct NetAddress {
  std::string host;
  uint16_t port = 0;
  std::shared_ptr<TlsContext> tls;  // null: plain
};

// A TCP connection, with TLS (1.2 or later, the certificate must name the host) where asked. Every
// failure is unavailable, but a certificate that is refused is io: trying again does not help.
// Never raises SIGPIPE. One thread at a time.
class NetStream {
 public:
  static Result<NetStream> connect(const NetAddress& address, Deadline deadline,
                                   std::chrono::milliseconds stall_timeout);
  // A stream socket that is connected already, without TLS; it must not block.
  static NetStream adopt(UniqueFd fd, std::chrono::milliseconds stall_timeout);
  NetStream(NetStream&& other) noexcept;
  NetStream& operator=(NetStream&&) = delete;
  ~NetStream();

  // At least one byte; unavailable at the end of the stream.
  Result<size_t> read_some(std::span<std::byte> out, Deadline deadline);
  Status write_all(std::span<const std::byte> bytes, Deadline deadline);
  // Whether something arrived unasked, so also whether the other end has hung up.
  bool has_input() const;

 private:
  explicit NetStream(UniqueFd fd, std::string name, std::chrono::milliseconds stall_timeout)
      : fd_(std::move(fd)), name_(std::move(name)), stall_timeout_(stall_timeout) {}
  Status start_tls(const NetAddress& address, Deadline deadline);
  // Waits until `events` (poll) are possible.
  Status wait(short events, Deadline deadline) const;
  // What to wait for after a TLS call that returned `result`; the error where it is one.
  Status wait_tls(int result, std::string_view what, Deadline deadline);
  Error failed(std::string_view what) const;

  UniqueFd fd_;
  std::string name_;  // host:port
  std::chrono::milliseconds stall_timeout_;
  ssl_st* tls_ = nullptr;
};

}  // namespace kvcodec
