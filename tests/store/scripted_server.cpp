// SPDX-License-Identifier: Apache-2.0
#include "scripted_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <random>
#include <stdexcept>

#include "server_process.h"

namespace kvcodec {
namespace {

int listen_on(uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  const int one = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd, 128) != 0) {
    ::close(fd);
    return -1;
  }
  return fd;
}

}  // namespace

uint16_t free_port() {
  static std::mt19937 random{std::random_device{}()};
  for (int i = 0; i < 1000; ++i) {
    const auto port = static_cast<uint16_t>(20000 + random() % 12000);
    const int fd = listen_on(port);
    if (fd < 0) continue;
    ::close(fd);
    return port;
  }
  throw std::runtime_error("no free port");
}

bool ScriptedServer::Peer::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool ScriptedServer::Peer::fill() {
  char buffer[16384];
  const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
  if (n <= 0) return false;
  unread_.append(buffer, static_cast<size_t>(n));
  return true;
}

std::string ScriptedServer::Peer::read_until(std::string_view mark) {
  size_t at = 0;
  while ((at = unread_.find(mark)) == std::string::npos) {
    if (!fill()) return {};
  }
  std::string taken = unread_.substr(0, at + mark.size());
  unread_.erase(0, at + mark.size());
  return taken;
}

std::string ScriptedServer::Peer::read_http() {
  std::string request = read_until("\r\n\r\n");
  const size_t at = request.find("Content-Length: ");
  const size_t length = at == std::string::npos ? 0 : std::stoul(request.substr(at + 16));
  while (!request.empty() && unread_.size() < length) {
    if (!fill()) return {};
  }
  request += unread_.substr(0, length);
  unread_.erase(0, length);
  return request;
}

void ScriptedServer::Peer::reset() const {
  const linger hard{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
}

ScriptedServer::ScriptedServer(Script script) : script_(std::move(script)) {
  port_ = free_port();
  listener_ = listen_on(port_);
  if (listener_ < 0) throw std::runtime_error("cannot listen");
  acceptor_ = std::jthread([this] { accept_all(); });
}

ScriptedServer::~ScriptedServer() {
  {
    const std::lock_guard guard(mutex_);
    stopping_ = true;
    for (const int fd : fds_) ::shutdown(fd, SHUT_RDWR);
  }
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  threads_.clear();
  for (const int fd : fds_) ::close(fd);
  ::close(listener_);
}

void ScriptedServer::accept_all() {
  for (;;) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const std::lock_guard guard(mutex_);
    if (fd < 0 || stopping_) {
      if (fd >= 0) ::close(fd);
      return;
    }
    fds_.push_back(fd);
    threads_.emplace_back([this, fd, at = fds_.size() - 1] {
      Peer peer(fd);
      script_(peer);
      const std::lock_guard closing(mutex_);
      ::close(fd);
      fds_[at] = -1;
    });
  }
}

int ScriptedServer::connections() const {
  const std::lock_guard guard(mutex_);
  return static_cast<int>(fds_.size());
}

ScriptedServer::Script ScriptedServer::http(
    std::function<std::string(const std::string&, int)> reply) {
  const auto count = std::make_shared<std::atomic<int>>(0);
  return [reply = std::move(reply), count](Peer& peer) {
    for (std::string request; !(request = peer.read_http()).empty();) {
      if (!peer.send(reply(request, count->fetch_add(1)))) return;
    }
  };
}

std::string http_reply(std::string_view status, std::string_view body,
                       const std::vector<std::string>& headers) {
  std::string reply = "HTTP/1.1 " + std::string(status) + "\r\n";
  for (const std::string& header : headers) reply += header + "\r\n";
  return reply + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

}  // namespace kvcodec
