// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kvcodec/result.h"

struct timespec;

namespace kvcodec {

// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Error{io, "<what> <path>: <text of errno>"}.
Error os_error(int err, std::string_view what, std::string_view path);

// Thin wrappers: they retry EINTR and partial transfers, and set close-on-exec. `path` is only for
// messages. open_at returns an invalid descriptor and sets errno on failure, as open(2) does.
UniqueFd open_at(int dir, const char* name, int flags, mode_t mode = 0);
Status write_all(int fd, std::span<const std::byte> bytes, std::string_view path);
// Bytes read: out.size() unless the file ends before.
Result<size_t> read_at(int fd, std::span<std::byte> out, uint64_t offset, std::string_view path);
Status sync_file(int fd, std::string_view path);
// Makes the entries of a directory durable.
Status sync_directory(int dir, const char* name, std::string_view path);

// flock(2): bound to the open file, not to the process, so that it also excludes threads, works
// between containers that share the file system, and ends with its holder however that dies.
Status lock_file(int fd, std::string_view path);
bool try_lock_file(int fd);

// Calls fn for the name of each entry, "." and ".." left out, in no particular order.
Status for_each_entry(int dir, const char* name, std::string_view path,
                      const std::function<Status(const char* entry)>& fn);

// Nanoseconds are kept.
std::chrono::system_clock::time_point from_timespec(const timespec& time);
timespec to_timespec(std::chrono::system_clock::time_point time);

}  // namespace kvcodec
