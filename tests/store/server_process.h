// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/net_stream.h"

extern char** environ;

namespace kvcodec {

// Whether a program of this name can be run.
inline bool is_installed(const std::string& program) {
  const char* path = ::getenv("PATH");
  std::string folders = path != nullptr ? path : "";
  folders += ":/usr/sbin:/usr/local/bin";
  for (size_t at = 0; at < folders.size();) {
    const size_t end = std::min(folders.find(':', at), folders.size());
    if (::access((folders.substr(at, end - at) + "/" + program).c_str(), X_OK) == 0) return true;
    at = end + 1;
  }
  return false;
}

// A TCP port of 127.0.0.1 that is free now. It lies outside the range that connections get theirs
// from, or a client's own port could take it before the server does.
uint16_t free_port();

// A program that runs beside the test, its output in a log file. It is killed when the object goes
// away, and by the kernel when this process dies. posix_spawn rather than fork: it goes with
// ThreadSanitizer.
class ServerProcess {
 public:
  ServerProcess(std::vector<std::string> command, const std::string& log) : log_(log) {
    command.insert(command.begin(), {"setpriv", "--pdeathsig", "KILL"});
    std::vector<char*> arguments;
    for (std::string& word : command) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                       0600);
    ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    const int failed =
        ::posix_spawnp(&pid_, "setpriv", &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) throw std::runtime_error("cannot start " + command[3]);
  }
  ServerProcess(ServerProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), log_(std::move(other.log_)) {}
  ServerProcess& operator=(ServerProcess&&) = delete;
  ~ServerProcess() { stop(); }

  // Waits until it accepts connections.
  void await(uint16_t port) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const auto brief = std::chrono::milliseconds(1000);
    while (!NetStream::connect({"127.0.0.1", port, nullptr}, Deadline::in(brief), brief).ok()) {
      int status = 0;
      const bool ended = ::waitpid(pid_, &status, WNOHANG) == pid_;
      if (ended) pid_ = -1;
      if (ended || std::chrono::steady_clock::now() > patience) {
        throw std::runtime_error("the server does not answer; its log: " + log());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  void signal(int number) const { ::kill(pid_, number); }
  void stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
  }
  std::string log() const {
    std::ifstream file(log_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  pid_t pid_ = -1;
  std::string log_;
};

// A certificate authority, and a certificate that it gave to `host`; by the openssl program.
struct TestCertificates {
  TestCertificates(const std::string& folder, const std::string& host)
      : ca(folder + "/ca.pem"), certificate(folder + "/server.pem"), key(folder + "/server.key") {
    const std::string quiet = " >/dev/null 2>&1";
    const std::string new_key =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
        " -days 2 -subj ";
    const std::string commands[] = {
        new_key + "'/CN=KVCodec test CA' -keyout " + folder + "/ca.key -out " + ca,
        new_key + "/CN=server -addext 'subjectAltName=" + host +
            "' -addext basicConstraints=critical,CA:FALSE -CA " + ca + " -CAkey " + folder +
            "/ca.key -keyout " + key + " -out " + certificate};
    for (const std::string& command : commands) {
      if (std::system((command + quiet).c_str()) != 0) throw std::runtime_error(command);
    }
  }
  std::string ca, certificate, key;
};

}  // namespace kvcodec
