// SPDX-License-Identifier: Apache-2.0
#include "store/temp_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <utility>

#include "base/error.h"

namespace kvcodec {
namespace {

constexpr int kMaxAttempts = 100;

std::string unique_name() {
  std::random_device random;
  const uint64_t bits = (static_cast<uint64_t>(random()) << 32) | random();
  return fmt::format("{}-{:016x}", ::getpid(), bits);
}

}  // namespace

Result<TempFile> TempFile::create(int dir, std::string_view dir_path) {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const std::string name = unique_name();
    const std::string path = fmt::format("{}/{}", dir_path, name);
    UniqueFd fd = open_at(dir, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
    if (!fd.valid()) {
      if (errno == EEXIST) continue;
      return os_error(errno, "create", path);
    }
    // A sweeper may have come between creation and lock, taking the file for a leftover.
    TempFile file(dir, std::move(fd), name, path);
    if (!try_lock_file(file.fd_.get())) {
      if (errno == EWOULDBLOCK) continue;
      return os_error(errno, "flock", path);
    }
    struct stat info;
    if (::fstat(file.fd_.get(), &info) != 0) return os_error(errno, "stat", path);
    if (info.st_nlink > 0) return file;
  }
  return make_error(ErrorCode::unavailable, "create a temporary file in {}: {} attempts failed",
                    dir_path, kMaxAttempts);
}

TempFile::TempFile(TempFile&& other) noexcept
    : dir_(other.dir_),
      fd_(std::move(other.fd_)),
      name_(std::exchange(other.name_, {})),
      path_(std::move(other.path_)) {}

TempFile::~TempFile() {
  if (!name_.empty()) ::unlinkat(dir_, name_.c_str(), 0);
}

Status TempFile::write(std::span<const std::byte> bytes) {
  KVCODEC_CHECK(write_all(fd_.get(), bytes, path_));
  return sync_file(fd_.get(), path_);
}

Status TempFile::set_modified(const timespec& time) {
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, time};
  if (::futimens(fd_.get(), times) != 0) return os_error(errno, "set the time of", path_);
  return ok_status();
}

Status TempFile::move_to(int to_dir, const char* to_name, std::string_view to_path) {
  if (::renameat(dir_, name_.c_str(), to_dir, to_name) != 0) {
    return os_error(errno, fmt::format("rename {} to", path_), to_path);
  }
  name_.clear();
  return ok_status();
}

Status sweep_temp_files(int dir, std::string_view dir_path) {
  return for_each_entry(dir, ".", dir_path, [&](const char* entry) {
    const UniqueFd fd = open_at(dir, entry, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
    // Names are never used twice, so this one still means the file that was locked, or nothing.
    if (fd.valid() && try_lock_file(fd.get())) ::unlinkat(dir, entry, 0);
    return ok_status();
  });
}

}  // namespace kvcodec
