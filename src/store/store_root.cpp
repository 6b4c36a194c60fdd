// SPDX-License-Identifier: Apache-2.0
#include "store/store_root.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "store/store_name.h"

namespace kvcodec {
namespace {

constexpr char kNewMarkerFile[] = "kvcodec-store.new";
constexpr std::string_view kMarkerStart = "kvcodec store, layout ";
constexpr std::string_view kMarkerText = "kvcodec store, layout 1\n";
constexpr mode_t kFolderMode = 0777;  // the caller's umask decides who may read the cache

// mkdir -p, each new folder made durable in its parent.
Status make_path(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (part.back() != '/') {
      if (::mkdir(part.c_str(), kFolderMode) == 0) {
        const std::string parent = part.substr(0, std::max<size_t>(part.rfind('/'), 1));
        KVCODEC_CHECK(sync_directory(AT_FDCWD, parent.c_str(), parent));
      } else if (errno != EEXIST) {
        return os_error(errno, "create folder", part);
      }
    }
    if (end == std::string::npos) return ok_status();
  }
}

// What a folder may hold and still become a store: nothing, or what an earlier creation that was
// cut short left. A freshly made file system has lost+found.
bool may_precede_marker(std::string_view entry) {
  return entry == kMarkerFile || entry == kLockFile || entry == kNewMarkerFile ||
         entry == "lost+found";
}

}  // namespace

std::string StoreRoot::shard_name(unsigned shard) { return fmt::format("{:02x}", shard); }

std::string StoreRoot::object_path(std::string_view name) {
  const uint64_t hash = checksum64(std::as_bytes(std::span(name)));
  std::string path = fmt::format("{}/{}", shard_name(hash % kShards), name);
  std::replace(path.begin() + 3, path.end(), '/', '+');
  return path;
}

std::string StoreRoot::object_name_of_file(std::string_view file) {
  std::string name(file);
  // A '/' cannot be there, and a name with one would have been written with '+'.
  std::replace(name.begin(), name.end(), '+', '/');
  return validate_name(name).ok() ? name : std::string();
}

Result<StoreRoot> StoreRoot::open(const std::string& path) {
  StoreRoot root;
  root.path_ = path;
  root.tmp_path_ = root.full_path("tmp");
  root.root_ = open_at(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY);
  if (!root.root_.valid() && errno == ENOENT) {
    KVCODEC_CHECK(make_path(path));
    root.root_ = open_at(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY);
  }
  if (!root.root_.valid()) return os_error(errno, "open folder", path);
  KVCODEC_CHECK(root.claim());
  KVCODEC_TRY(root.objects_, root.open_folder("objects"));
  KVCODEC_TRY(root.tmp_, root.open_folder("tmp"));
  KVCODEC_CHECK(root.make_shards());
  // Whoever made the folders may have been killed before this.
  KVCODEC_CHECK(sync_file(root.root_.get(), path));
  return root;
}

Result<bool> StoreRoot::has_marker() {
  const UniqueFd fd = open_at(root(), kMarkerFile, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!fd.valid()) {
    if (errno == ENOENT) return false;
    return os_error(errno, "open", full_path(kMarkerFile));
  }
  std::array<char, 64> buffer;
  KVCODEC_TRY(const size_t n, read_at(fd.get(), std::as_writable_bytes(std::span(buffer)), 0,
                                      full_path(kMarkerFile)));
  const std::string_view text(buffer.data(), n);
  if (text == kMarkerText) return true;
  if (text.starts_with(kMarkerStart) && text.ends_with('\n')) {
    const auto version = text.substr(kMarkerStart.size());
    return make_error(ErrorCode::unsupported, "{}: store layout {}; this build knows layout 1",
                      path_, version.substr(0, version.size() - 1));
  }
  return make_error(ErrorCode::invalid_argument, "{}: not the marker of a KVCodec store",
                    full_path(kMarkerFile));
}

Status StoreRoot::claim() {
  KVCODEC_TRY(const bool marked, has_marker());
  if (marked) return ok_status();
  std::string foreign;
  KVCODEC_CHECK(for_each_entry(root(), ".", path_, [&](const char* entry) {
    if (!may_precede_marker(entry)) foreign = entry;
    return ok_status();
  }));
  if (foreign.empty()) return create_marker();
  // Another process may have made the marker, and then the folders, in the meantime.
  KVCODEC_TRY(const bool marked_since, has_marker());
  if (marked_since) return ok_status();
  return make_error(ErrorCode::invalid_argument,
                    "{}: not a KVCodec store (it has no {}) and not empty (it has '{}')", path_,
                    kMarkerFile, foreign);
}

Status StoreRoot::create_marker() {
  const UniqueFd lock = open_at(root(), kLockFile, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
  if (!lock.valid()) return os_error(errno, "create", full_path(kLockFile));
  KVCODEC_CHECK(lock_file(lock.get(), full_path(kLockFile)));
  KVCODEC_TRY(const bool marked, has_marker());
  if (marked) return ok_status();
  const std::string path = full_path(kNewMarkerFile);
  const UniqueFd marker =
      open_at(root(), kNewMarkerFile, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0666);
  if (!marker.valid()) return os_error(errno, "create", path);
  KVCODEC_CHECK(write_all(marker.get(), std::as_bytes(std::span(kMarkerText)), path));
  KVCODEC_CHECK(sync_file(marker.get(), path));
  if (::renameat(root(), kNewMarkerFile, root(), kMarkerFile) != 0) {
    return os_error(errno, "rename", path);
  }
  return sync_file(root(), path_);
}

Result<UniqueFd> StoreRoot::open_folder(const char* name) {
  if (::mkdirat(root(), name, kFolderMode) != 0 && errno != EEXIST) {
    return os_error(errno, "create folder", full_path(name));
  }
  // A symbolic link could lead out of the store.
  UniqueFd fd = open_at(root(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!fd.valid()) return os_error(errno, "open folder", full_path(name));
  return fd;
}

Status StoreRoot::make_shards() {
  for (unsigned shard = 0; shard < kShards; ++shard) {
    const std::string name = shard_name(shard);
    const std::string path = full_path("objects/" + name);
    struct stat info;
    if (::fstatat(objects(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
      if (S_ISDIR(info.st_mode)) continue;
      return os_error(ENOTDIR, "open folder", path);
    }
    if (::mkdirat(objects(), name.c_str(), kFolderMode) != 0 && errno != EEXIST) {
      return os_error(errno, "create folder", path);
    }
  }
  return sync_file(objects(), full_path("objects"));
}

}  // namespace kvcodec
