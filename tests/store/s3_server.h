// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "server_process.h"
#include "temp_dir.h"

namespace kvcodec {

// The S3 API on a free port of the loopback interface: moto, which verifies signatures. The keys
// that it knows are put into this process's environment.
class S3Server {
 public:
  // With `objects` "many/0000" and so on.
  explicit S3Server(int objects = 0) : port_(free_port()) {
    process_.emplace(
        std::vector<std::string>{KVCODEC_TEST_PYTHON, KVCODEC_TEST_FOLDER "/s3_server.py",
                                 std::to_string(port_), "bucket", kKey, kSecret,
                                 std::to_string(objects)},
        dir_ / "log");
    process_->await(port_);
    set_environment();
  }
  static void set_environment() {
    ::setenv("AWS_ACCESS_KEY_ID", kKey, 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", kSecret, 1);
    ::unsetenv("AWS_SESSION_TOKEN");
    ::setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    ::setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
  }
  std::string uri(const std::string& prefix, const std::string& query = {}) const {
    return "s3://bucket/" + prefix + "?endpoint=http%3A%2F%2F127.0.0.1%3A" + std::to_string(port_) +
           query;
  }
  uint16_t port() const { return port_; }
  static std::string missing() {
    static const bool there =
        std::system(KVCODEC_TEST_PYTHON " -c 'import moto, flask_cors' 2>/dev/null") == 0;
    return there ? "" : "no moto for Python here: scripts/install-deps";
  }
  static constexpr char kKey[] = "AKIDTEST", kSecret[] = "secret/key+of=tests";

 private:
  uint16_t port_;
  TempDir dir_;
  std::optional<ServerProcess> process_;
};

}  // namespace kvcodec
