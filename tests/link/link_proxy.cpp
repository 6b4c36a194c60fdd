// SPDX-License-Identifier: Apache-2.0
#include "link/link_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <deque>
#include <memory>
#include <stdexcept>

namespace kvcodec {
namespace {

// What a direction of a connection holds until it may leave: the bytes in flight.
constexpr size_t kInFlightBytes = size_t{8} << 20;
constexpr size_t kLeastSlice = 1500, kMostSlice = size_t{256} << 10;

sockaddr_in address_of(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    throw std::runtime_error("link proxy: not an IPv4 address: " + host);
  }
  return address;
}

struct Slice {
  double due = 0;
  std::vector<std::byte> bytes;
  size_t sent = 0;
};

// Sends what it can at once; false where the connection is gone.
bool send_some(int fd, Slice& slice) {
  while (slice.sent < slice.bytes.size()) {
    const ssize_t n = ::send(fd, slice.bytes.data() + slice.sent, slice.bytes.size() - slice.sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    slice.sent += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

double LinkProxy::Lane::reserve(const WireTrace& trace, double now, size_t bytes) {
  const std::lock_guard guard(mutex_);
  free_at_ = trace.finish(std::max(free_at_, now), static_cast<double>(bytes));
  return free_at_;
}

LinkProxy::LinkProxy(Options options) : options_(std::move(options)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = address_of("127.0.0.1", options_.listen_port);
  const int one = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 256) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    ::close(listener_);
    throw std::runtime_error("link proxy: cannot listen");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::jthread([this] { accept_all(); });
}

LinkProxy::~LinkProxy() {
  stopping_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  threads_.clear();
  ::close(listener_);
}

double LinkProxy::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

size_t LinkProxy::slice_bytes() const {
  return static_cast<size_t>(std::clamp(options_.trace.peak() / 1000,
                                        static_cast<double>(kLeastSlice),
                                        static_cast<double>(kMostSlice)));
}

void LinkProxy::accept_all() {
  const sockaddr_in to = address_of(options_.to_host, options_.to_port);
  for (uint64_t number = 0; !stopping_;) {
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (stopping_ || ::connect(server, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
      ::close(server);
      ::close(client);
      continue;
    }
    const int one = 1;
    auto connection = std::make_shared<Connection>();
    connection->client = client;
    connection->server = server;
    connection->number = number++;
    for (const int fd : {client, server}) {
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    ++counts_.connections;
    const std::lock_guard guard(mutex_);
    threads_.emplace_back([this, connection] { pump(connection, false); });
    threads_.emplace_back([this, connection] { pump(connection, true); });
  }
}

void LinkProxy::hang_up(Connection& connection, bool hard) {
  if (hard && !connection.broken.exchange(true)) {
    // A reset rather than an orderly end, at close.
    const linger now{1, 0};
    ::setsockopt(connection.client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ::setsockopt(connection.server, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ++counts_.resets;
  }
  if (hard) {
    // Wakes the other direction's thread; the reset itself is sent when both have ended.
    ::shutdown(connection.client, SHUT_RD);
    ::shutdown(connection.server, SHUT_RD);
  }
}

void LinkProxy::pump(const std::shared_ptr<Connection>& connection, bool downstream) {
  const int from = downstream ? connection->server : connection->client;
  const int to = downstream ? connection->client : connection->server;
  Lane& lane = downstream ? down_ : up_;
  auto& bytes_taken = downstream ? counts_.bytes_down : counts_.bytes_up;
  FaultyWire wire(options_.faults, connection->number, downstream);
  const uint64_t resets_before = options_.trace.resets(now());
  std::deque<Slice> in_flight;
  size_t held = 0;
  bool ended = false;     // nothing more comes in
  double hold_until = 0;  // nothing leaves before: the order is kept
  std::vector<std::byte> buffer(slice_bytes());
  while (!stopping_ && !connection->broken && !(ended && in_flight.empty())) {
    const double time = now();
    if (options_.trace.resets(time) != resets_before) {
      hang_up(*connection, true);
      break;
    }
    const bool due = !in_flight.empty() && in_flight.front().due <= time;
    const bool room = !ended && held < kInFlightBytes;
    pollfd entries[2] = {{from, static_cast<short>(room ? POLLIN : 0), 0},
                         {to, static_cast<short>(due ? POLLOUT : 0), 0}};
    // Wakes for what is due next, for resets, and to see that the proxy is stopped.
    double wake = time + 0.02;
    if (!in_flight.empty() && !due) wake = std::min(wake, in_flight.front().due);
    const double wait = std::max(0.0, wake - time);
    const timespec timeout{static_cast<time_t>(wait),
                           static_cast<long>((wait - std::floor(wait)) * 1e9)};
    // Where nothing is asked of `from`, its hang-up would be reported at once, again and again.
    pollfd* first = room ? entries : entries + 1;
    const nfds_t count = (room ? 1u : 0u) + (due ? 1u : 0u);
    if (::ppoll(first, count, &timeout, nullptr) < 0 && errno != EINTR) break;
    if (due) {
      Slice& slice = in_flight.front();
      if (!send_some(to, slice)) {
        hang_up(*connection, true);
        break;
      }
      if (slice.sent == slice.bytes.size()) {
        held -= slice.bytes.size();
        in_flight.pop_front();
        if (in_flight.empty() && ended) break;
      }
    }
    if (!room || (entries[0].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    const ssize_t n = ::recv(from, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) {
      if (n < 0) hang_up(*connection, true);
      ended = true;
      continue;
    }
    auto got = std::span(buffer).first(static_cast<size_t>(n));
    while (!got.empty() && !connection->broken) {
      const auto verdict = wire.pass(got);
      counts_.flips += verdict.flips;
      if (verdict.pass > 0) {
        const double crossed = lane.reserve(options_.trace, now(), verdict.pass);
        hold_until = std::max(hold_until, crossed + options_.trace.latency_s());
        in_flight.push_back(
            {hold_until, {got.begin(), got.begin() + static_cast<ptrdiff_t>(verdict.pass)}});
        held += verdict.pass;
        bytes_taken += verdict.pass;
      }
      got = got.subspan(verdict.pass);
      if (verdict.reset) hang_up(*connection, true);
      if (!verdict.stop) continue;
      ++counts_.stops;
      hold_until = std::max(hold_until, now()) + options_.faults.stop_ms / 1e3;
    }
  }
  if (ended && !connection->broken) ::shutdown(to, SHUT_WR);
  if (connection->pumps.fetch_sub(1) == 1) {
    ::close(connection->client);
    ::close(connection->server);
  }
}

}  // namespace kvcodec
