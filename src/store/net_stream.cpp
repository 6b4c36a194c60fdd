// SPDX-License-Identifier: Apache-2.0
#include "store/net_stream.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace kvcodec {
namespace {

std::string errno_text(int err) { return std::generic_category().message(err); }

std::string tls_error_text() {
  const unsigned long code = ERR_get_error();
  if (code == 0) return "the connection ended";
  const char* reason = ERR_reason_error_string(code);
  return reason == nullptr ? fmt::format("TLS error {:#x}", code) : reason;
}

// OpenSSL's own socket BIO raises SIGPIPE where the other end has gone, so this is one that does
// not. Its data pointer is the descriptor.
int bio_fd(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int bio_done(BIO* bio, ssize_t n, int retry_flag) {
  BIO_clear_retry_flags(bio);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    BIO_set_flags(bio, retry_flag | BIO_FLAGS_SHOULD_RETRY);
  }
  return static_cast<int>(n);
}

int bio_write(BIO* bio, const char* bytes, int n) {
  return bio_done(bio, ::send(bio_fd(bio), bytes, static_cast<size_t>(n), MSG_NOSIGNAL),
                  BIO_FLAGS_WRITE);
}

int bio_read(BIO* bio, char* bytes, int n) {
  return bio_done(bio, ::recv(bio_fd(bio), bytes, static_cast<size_t>(n), 0), BIO_FLAGS_READ);
}

long bio_ctrl(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* bio_method() {
  static const BIO_METHOD* method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "kvcodec socket");
    BIO_meth_set_write(made, bio_write);
    BIO_meth_set_read(made, bio_read);
    BIO_meth_set_ctrl(made, bio_ctrl);
    return made;
  }();
  return method;
}

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
};

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::make(const std::string& ca_file) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  if (context == nullptr) return make_error(ErrorCode::internal, "TLS: {}", tls_error_text());
  std::shared_ptr<TlsContext> made(new TlsContext(context));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  ERR_clear_error();
  const int loaded = ca_file.empty() ? SSL_CTX_set_default_verify_paths(context)
                                     : SSL_CTX_load_verify_file(context, ca_file.c_str());
  if (loaded != 1) {
    return make_error(ErrorCode::invalid_argument, "certificates to trust, '{}': {}",
                      ca_file.empty() ? "the system's" : ca_file, tls_error_text());
  }
  return made;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Result<NetStream> NetStream::connect(const NetAddress& address, Deadline deadline,
                                     std::chrono::milliseconds stall_timeout) {
  const std::string name = fmt::format("{}:{}", address.host, address.port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  AddressList list;
  const int resolved = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(),
                                     &hints, &list.first);
  if (resolved != 0) {
    return make_error(ErrorCode::unavailable, "{}: {}", name, ::gai_strerror(resolved));
  }
  Error last = make_error(ErrorCode::unavailable, "{}: no address", name);
  for (const addrinfo* at = list.first; at != nullptr; at = at->ai_next) {
    UniqueFd fd(::socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.valid()) return os_error(errno, "socket for", name);
    const int one = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    int err = ::connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    NetStream stream(std::move(fd), name, stall_timeout);
    if (err == EINPROGRESS) {
      const Status waited = stream.wait(POLLOUT, deadline);
      if (!waited.ok()) {
        last = waited.error();
        continue;
      }
      socklen_t size = sizeof err;
      ::getsockopt(stream.fd_.get(), SOL_SOCKET, SO_ERROR, &err, &size);
    }
    if (err != 0) {
      last = make_error(ErrorCode::unavailable, "connect to {}: {}", name, errno_text(err));
      continue;
    }
    if (address.tls != nullptr) KVCODEC_CHECK(stream.start_tls(address, deadline));
    return stream;
  }
  return last;
}

NetStream NetStream::adopt(UniqueFd fd, std::chrono::milliseconds stall_timeout) {
  return NetStream(std::move(fd), "the socket", stall_timeout);
}

NetStream::NetStream(NetStream&& other) noexcept
    : fd_(std::move(other.fd_)),
      name_(std::move(other.name_)),
      stall_timeout_(other.stall_timeout_),
      tls_(std::exchange(other.tls_, nullptr)) {}

NetStream::~NetStream() {
  if (tls_ != nullptr) SSL_free(tls_);
}

Status NetStream::start_tls(const NetAddress& address, Deadline deadline) {
  tls_ = SSL_new(address.tls->get());
  BIO* bio = BIO_new(bio_method());
  if (tls_ == nullptr || bio == nullptr) {
    return make_error(ErrorCode::internal, "TLS to {}: {}", name_, tls_error_text());
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a number in a pointer's place is all that is kept
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd_.get())));
  BIO_set_init(bio, 1);
  SSL_set_bio(tls_, bio, bio);
  unsigned char numeric[sizeof(in6_addr)];
  const bool is_address = ::inet_pton(AF_INET, address.host.c_str(), numeric) == 1 ||
                          ::inet_pton(AF_INET6, address.host.c_str(), numeric) == 1;
  const int named = is_address
                        ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_), address.host.c_str())
                        : SSL_set1_host(tls_, address.host.c_str()) &&
                              SSL_set_tlsext_host_name(tls_, address.host.c_str());
  if (named != 1) {
    return make_error(ErrorCode::invalid_argument, "TLS to {}: the host cannot be named in TLS",
                      name_);
  }
  for (;;) {
    ERR_clear_error();
    const int result = SSL_connect(tls_);
    if (result == 1) return ok_status();
    const long verified = SSL_get_verify_result(tls_);
    if (verified != X509_V_OK) {
      return make_error(ErrorCode::io, "TLS to {}: certificate refused: {}", name_,
                        X509_verify_cert_error_string(verified));
    }
    KVCODEC_CHECK(wait_tls(result, "TLS handshake with", deadline));
  }
}

Status NetStream::wait_tls(int result, std::string_view what, Deadline deadline) {
  switch (SSL_get_error(tls_, result)) {
    case SSL_ERROR_WANT_READ: return wait(POLLIN, deadline);
    case SSL_ERROR_WANT_WRITE: return wait(POLLOUT, deadline);
    default: return make_error(ErrorCode::unavailable, "{} {}: {}", what, name_, tls_error_text());
  }
}

Status NetStream::wait(short events, Deadline deadline) const {
  const Deadline until = deadline.sooner(stall_timeout_);
  for (;;) {
    pollfd entry{fd_.get(), events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(until.remaining().count()));
    if (ready > 0) return ok_status();
    if (ready < 0 && errno != EINTR) return os_error(errno, "poll", name_);
    if (until.over()) {
      return make_error(ErrorCode::unavailable, "{}: {}", name_,
                        deadline.over() ? "the deadline is over" : "nothing moved for too long");
    }
  }
}

Error NetStream::failed(std::string_view what) const {
  return make_error(ErrorCode::unavailable, "{} {}: {}", what, name_, errno_text(errno));
}

Result<size_t> NetStream::read_some(std::span<std::byte> out, Deadline deadline) {
  for (;;) {
    if (tls_ != nullptr) {
      ERR_clear_error();
      size_t n = 0;
      const int result = SSL_read_ex(tls_, out.data(), out.size(), &n);
      if (result == 1) return n;
      KVCODEC_CHECK(wait_tls(result, "read from", deadline));
      continue;
    }
    const ssize_t n = ::recv(fd_.get(), out.data(), out.size(), 0);
    if (n > 0) return static_cast<size_t>(n);
    if (n == 0) {
      return make_error(ErrorCode::unavailable, "read from {}: the connection ended", name_);
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return failed("read from");
    KVCODEC_CHECK(wait(POLLIN, deadline));
  }
}

Status NetStream::write_all(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    if (tls_ != nullptr) {
      ERR_clear_error();
      size_t n = 0;
      const int result = SSL_write_ex(tls_, bytes.data(), bytes.size(), &n);
      if (result == 1) {
        bytes = bytes.subspan(n);
      } else {
        KVCODEC_CHECK(wait_tls(result, "write to", deadline));
      }
      continue;
    }
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      KVCODEC_CHECK(wait(POLLOUT, deadline));
    } else if (errno != EINTR) {
      return failed("write to");
    }
  }
  return ok_status();
}

bool NetStream::has_input() const {
  pollfd entry{fd_.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) != 0;
}

}  // namespace kvcodec
