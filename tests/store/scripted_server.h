// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace kvcodec {

// A server on the loopback interface that answers as the test says, which may be nothing that a
// decent server would: one thread a connection, plain TCP.
class ScriptedServer {
 public:
  // One connection. Everything returns false once the other end, or the server, is gone.
  class Peer {
   public:
    explicit Peer(int fd) : fd_(fd) {}
    bool send(std::string_view bytes) const;
    // Reads until `mark` has come, and takes it with all before it; empty at the end.
    std::string read_until(std::string_view mark);
    // An HTTP request with its body; empty at the end.
    std::string read_http();
    // Ends the connection with a reset rather than an orderly end.
    void reset() const;

   private:
    bool fill();
    int fd_;
    std::string unread_;
  };
  using Script = std::function<void(Peer&)>;

  explicit ScriptedServer(Script script);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  // Answers each HTTP request by reply(request, how many there were before).
  static Script http(std::function<std::string(const std::string&, int)> reply);

  uint16_t port() const { return port_; }
  int connections() const;

 private:
  void accept_all();
  Script script_;
  int listener_ = -1;
  uint16_t port_ = 0;
  mutable std::mutex mutex_;  // guards the rest
  bool stopping_ = false;
  std::vector<int> fds_;
  std::vector<std::jthread> threads_;
  std::jthread acceptor_;
};

// "HTTP/1.1 <status>" with the right Content-Length.
std::string http_reply(std::string_view status, std::string_view body,
                       const std::vector<std::string>& headers = {});

}  // namespace kvcodec
