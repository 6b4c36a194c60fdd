// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "link/link_trace.h"
#include "link/wire_faults.h"

namespace kvcodec {

// A TCP server on the loopback interface that forwards to another one as if over a link: all its
// connections share the bandwidth of a trace (each direction has it for itself), in slices of about
// a millisecond, and meet its latency, resets and faults. What has crossed is a function of the
// time alone, as deadlines are absolute; how close that is to the truth depends on the machine: two
// cores carry some 10 Gb/s, faster traces are as fast as the cores are. A thread a direction and
// connection.
class LinkProxy {
 public:
  struct Options {
    uint16_t to_port = 0;
    std::string to_host = "127.0.0.1";
    uint16_t listen_port = 0;  // 0: any that is free
    WireTrace trace = WireTrace::constant(1e12);
    WireFaults faults{};
  };
  // Bytes are counted when the link takes them.
  struct Counts {
    std::atomic<uint64_t> connections{0}, bytes_up{0}, bytes_down{0}, resets{0}, flips{0}, stops{0};
  };

  // Throws std::runtime_error where it cannot listen.
  explicit LinkProxy(Options options);
  ~LinkProxy();
  LinkProxy(const LinkProxy&) = delete;
  LinkProxy& operator=(const LinkProxy&) = delete;

  uint16_t port() const { return port_; }
  const Counts& counts() const { return counts_; }

 private:
  // The bytes of one direction that the link has taken, by whatever connection.
  class Lane {
   public:
    // Reserves the link for `bytes` that came at `now`; returns when they have crossed, in seconds.
    double reserve(const WireTrace& trace, double now, size_t bytes);

   private:
    std::mutex mutex_;
    double free_at_ = 0;
  };
  struct Connection {
    int client = -1, server = -1;
    uint64_t number = 0;
    std::atomic<int> pumps{2};
    std::atomic<bool> broken{false};
  };

  double now() const;
  void accept_all();
  void pump(const std::shared_ptr<Connection>& connection, bool downstream);
  void hang_up(Connection& connection, bool hard);
  size_t slice_bytes() const;

  const Options options_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  uint16_t port_ = 0;
  int listener_ = -1;
  Counts counts_;
  Lane up_, down_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  // guards the rest
  std::vector<std::jthread> threads_;
  std::jthread acceptor_;
};

}  // namespace kvcodec
