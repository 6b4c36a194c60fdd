// SPDX-License-Identifier: Apache-2.0
#include "store/posix_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <system_error>

#include "base/error.h"

namespace kvcodec {
namespace {

// Repeats a system call that a signal interrupted.
template <typename Call>
auto retry_interrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

struct CloseDirectory {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

}  // namespace

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) ::close(fd_);
}

Error os_error(int err, std::string_view what, std::string_view path) {
  return make_error(ErrorCode::io, "{} {}: {}", what, path, std::generic_category().message(err));
}

UniqueFd open_at(int dir, const char* name, int flags, mode_t mode) {
  return UniqueFd(retry_interrupted([&] { return ::openat(dir, name, flags | O_CLOEXEC, mode); }));
}

Status write_all(int fd, std::span<const std::byte> bytes, std::string_view path) {
  while (!bytes.empty()) {
    const ssize_t n = retry_interrupted([&] { return ::write(fd, bytes.data(), bytes.size()); });
    if (n < 0) return os_error(errno, "write", path);
    if (n == 0) return make_error(ErrorCode::io, "write {}: the system took no bytes", path);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return ok_status();
}

Result<size_t> read_at(int fd, std::span<std::byte> out, uint64_t offset, std::string_view path) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = retry_interrupted([&] {
      return ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    });
    if (n < 0) return os_error(errno, "read", path);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

Status sync_file(int fd, std::string_view path) {
  if (retry_interrupted([&] { return ::fsync(fd); }) < 0) return os_error(errno, "fsync", path);
  return ok_status();
}

Status sync_directory(int dir, const char* name, std::string_view path) {
  const UniqueFd fd = open_at(dir, name, O_RDONLY | O_DIRECTORY);
  if (!fd.valid()) return os_error(errno, "open", path);
  return sync_file(fd.get(), path);
}

Status lock_file(int fd, std::string_view path) {
  if (retry_interrupted([&] { return ::flock(fd, LOCK_EX); }) < 0) {
    return os_error(errno, "flock", path);
  }
  return ok_status();
}

bool try_lock_file(int fd) {
  return retry_interrupted([&] { return ::flock(fd, LOCK_EX | LOCK_NB); }) == 0;
}

Status for_each_entry(int dir, const char* name, std::string_view path,
                      const std::function<Status(const char* entry)>& fn) {
  const int fd =
      retry_interrupted([&] { return ::openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) return os_error(errno, "open", path);
  std::unique_ptr<DIR, CloseDirectory> stream(::fdopendir(fd));
  if (!stream) {
    const int err = errno;
    ::close(fd);
    return os_error(err, "open", path);
  }
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
    KVCODEC_CHECK(fn(entry->d_name));
  }
  if (errno != 0) return os_error(errno, "read", path);
  return ok_status();
}

std::chrono::system_clock::time_point from_timespec(const timespec& time) {
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec)));
}

timespec to_timespec(std::chrono::system_clock::time_point time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto part = std::chrono::duration_cast<std::chrono::nanoseconds>(time - whole);
  return {.tv_sec = static_cast<time_t>(whole.time_since_epoch().count()),
          .tv_nsec = static_cast<long>(part.count())};
}

}  // namespace kvcodec
