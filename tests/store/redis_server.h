// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server_process.h"
#include "temp_dir.h"

namespace kvcodec {

// A redis-server of our own on a free port of the loopback interface, without files.
class RedisServer {
 public:
  struct Options {
    bool tls = false;
    std::string certificate_host = "IP:127.0.0.1";
    std::vector<std::string> arguments{};  // more of redis-server's
  };

  RedisServer() : RedisServer(Options{}) {}
  explicit RedisServer(Options options) : options_(std::move(options)), port_(free_port()) {
    if (options_.tls) certificates_.emplace(dir_.path(), options_.certificate_host);
    start();
  }
  void start() {
    std::vector<std::string> command = {"redis-server", "--bind",   "127.0.0.1", "--save", "",
                                        "--dir",        dir_.path()};
    const std::string port = std::to_string(port_);
    if (options_.tls) {
      command.insert(command.end(),
                     {"--port", "0", "--tls-port", port, "--tls-auth-clients", "no",
                      "--tls-cert-file", certificates_->certificate, "--tls-key-file",
                      certificates_->key, "--tls-ca-cert-file", certificates_->ca});
    } else {
      command.insert(command.end(), {"--port", port});
    }
    command.insert(command.end(), options_.arguments.begin(), options_.arguments.end());
    process_.emplace(command, dir_ / "log");
    process_->await(port_);
  }
  void stop() { process_.reset(); }
  const ServerProcess& process() const { return *process_; }

  uint16_t port() const { return port_; }
  const std::string& ca_file() const { return certificates_->ca; }
  std::string uri(const std::string& login = {}, const std::string& query = {}) const {
    return (options_.tls ? "rediss://" : "redis://") + login +
           "127.0.0.1:" + std::to_string(port_) + query;
  }
  static std::string missing() {
    return is_installed("redis-server") ? "" : "no redis-server here: scripts/install-deps";
  }

 private:
  Options options_;
  uint16_t port_;
  TempDir dir_;
  std::optional<TestCertificates> certificates_;
  std::optional<ServerProcess> process_;
};

}  // namespace kvcodec
