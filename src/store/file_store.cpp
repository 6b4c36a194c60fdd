// SPDX-License-Identifier: Apache-2.0
#include "store/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/error.h"
#include "store/store_name.h"
#include "store/temp_file.h"

namespace kvcodec {
namespace {

using std::chrono::system_clock;

constexpr size_t kMaxCandidates = 4096;  // bounds memory; about 1 MB

Error no_object(std::string_view name, const StoreRoot& root) {
  return make_error(ErrorCode::not_found, "no object '{}' in {}", name, root.path());
}

// Whether an errno of open or stat means that there is no object of that name. A symbolic link,
// a folder or a device that somebody put there is none (ELOOP is O_NOFOLLOW's answer).
bool means_absent(int err) { return err == ENOENT || err == ELOOP || err == ENXIO; }

// None where there is no regular file of that name.
Result<std::optional<struct stat>> stat_file(int dir, const std::string& name,
                                             std::string_view path) {
  struct stat info;
  if (::fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (means_absent(errno)) return std::optional<struct stat>();
    return os_error(errno, "stat", path);
  }
  return S_ISREG(info.st_mode) ? std::optional(info) : std::nullopt;
}

ObjectStat to_object_stat(std::string name, const struct stat& info) {
  return {std::move(name), static_cast<uint64_t>(info.st_size), from_timespec(info.st_mtim)};
}

// A store that may be read but not written still answers; it just does not learn.
void record_use(int fd, const struct stat& info, std::chrono::nanoseconds interval) {
  const auto now = system_clock::now();
  const auto last = from_timespec(info.st_mtim);
  if (last <= now && now - last < interval) return;
  timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, to_timespec(now)};
  if (::futimens(fd, times) == 0 || errno != EPERM) return;
  // Only the owner may set a time of its choice; whoever may write the file may set the kernel's
  // (coarser) present.
  times[0].tv_nsec = times[1].tv_nsec = UTIME_NOW;
  ::futimens(fd, times);
}

bool used_later(const ObjectStat& a, const ObjectStat& b) {
  return a.last_used != b.last_used ? a.last_used > b.last_used : a.name > b.name;
}

// Keeps the least recently used of what was collected, about `keep` of them.
void keep_oldest(std::vector<ObjectStat>& objects, size_t keep) {
  if (objects.size() <= keep) return;
  std::nth_element(objects.begin(), objects.begin() + keep, objects.end(),
                   [](const auto& a, const auto& b) { return used_later(b, a); });
  objects.resize(keep);
}

}  // namespace

Result<std::unique_ptr<FileStore>> FileStore::open(const std::string& path,
                                                   const FileStoreOptions& options) {
  KVCODEC_TRY(StoreRoot root, StoreRoot::open(path));
  KVCODEC_CHECK(sweep_temp_files(root.tmp(), root.tmp_path()));
  return std::unique_ptr<FileStore>(new FileStore(std::move(root), options));
}

std::string FileStore::full_object_path(std::string_view name) const {
  return root_.full_path("objects/" + StoreRoot::object_path(name));
}

Result<size_t> FileStore::get(std::string_view name, std::span<std::byte> out, uint64_t offset) {
  KVCODEC_CHECK(validate_name(name));
  const std::string path = full_object_path(name);
  const UniqueFd fd = open_at(root_.objects(), StoreRoot::object_path(name).c_str(),
                              O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!fd.valid()) {
    if (means_absent(errno)) return no_object(name, root_);
    return os_error(errno, "open", path);
  }
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return os_error(errno, "stat", path);
  if (!S_ISREG(info.st_mode)) return no_object(name, root_);
  record_use(fd.get(), info, options_.use_interval);
  if (offset >= static_cast<uint64_t>(info.st_size)) return size_t{0};
  return read_at(fd.get(), out, offset, path);
}

Status FileStore::put(std::string_view name, std::span<const std::byte> bytes) {
  KVCODEC_CHECK(validate_name(name));
  if (options_.max_bytes > 0 && bytes.size() > options_.max_bytes) {
    return make_error(ErrorCode::invalid_argument,
                      "object '{}' of {} bytes; {} is bounded to {} bytes", name, bytes.size(),
                      root_.path(), options_.max_bytes);
  }
  KVCODEC_TRY(TempFile temp, TempFile::create(root_.tmp(), root_.tmp_path()));
  KVCODEC_CHECK(temp.write(bytes));
  const std::string target = StoreRoot::object_path(name);
  const std::string path = full_object_path(name);
  {
    const std::lock_guard guard(mutex_);
    KVCODEC_TRY(UsageLedger ledger, UsageLedger::lock(root_));
    KVCODEC_TRY(const auto old, stat_file(root_.objects(), target, path));
    const uint64_t old_bytes = old ? static_cast<uint64_t>(old->st_size) : 0;
    KVCODEC_CHECK(make_room(ledger, name, old_bytes, bytes.size()));
    // Here and not before, so that the times have the order of the puts.
    KVCODEC_CHECK(temp.set_modified(to_timespec(system_clock::now())));
    KVCODEC_CHECK(ledger.begin_change());
    KVCODEC_CHECK(temp.move_to(root_.objects(), target.c_str(), path));
    ledger.end_change(old_bytes, bytes.size());
  }
  const std::string shard = target.substr(0, target.find('/'));
  return sync_directory(root_.objects(), shard.c_str(), root_.full_path("objects/" + shard));
}

Result<ObjectStat> FileStore::stat(std::string_view name) {
  KVCODEC_CHECK(validate_name(name));
  KVCODEC_TRY(const auto info,
              stat_file(root_.objects(), StoreRoot::object_path(name), full_object_path(name)));
  if (!info) return no_object(name, root_);
  return to_object_stat(std::string(name), *info);
}

Result<std::vector<ObjectStat>> FileStore::list(std::string_view prefix) {
  KVCODEC_CHECK(sweep_temp_files(root_.tmp(), root_.tmp_path()));
  std::vector<ObjectStat> objects;
  KVCODEC_CHECK(
      for_each_object(prefix, [&](ObjectStat&& object) { objects.push_back(std::move(object)); }));
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::sort(objects.begin(), objects.end(), by_name);
  // readdir may show a name twice when its file is replaced meanwhile.
  const auto same_name = [](const auto& a, const auto& b) { return a.name == b.name; };
  objects.erase(std::unique(objects.begin(), objects.end(), same_name), objects.end());
  return objects;
}

Status FileStore::remove(std::string_view name) {
  KVCODEC_CHECK(validate_name(name));
  const std::string target = StoreRoot::object_path(name);
  const std::string path = full_object_path(name);
  const std::lock_guard guard(mutex_);
  KVCODEC_TRY(UsageLedger ledger, UsageLedger::lock(root_));
  KVCODEC_TRY(const auto info, stat_file(root_.objects(), target, path));
  if (!info) return no_object(name, root_);
  KVCODEC_CHECK(ledger.begin_change());
  if (::unlinkat(root_.objects(), target.c_str(), 0) != 0) return os_error(errno, "remove", path);
  ledger.end_change(static_cast<uint64_t>(info->st_size), 0);
  return ok_status();
}

Status FileStore::for_each_object(std::string_view prefix, const Visitor& visit) {
  for (unsigned shard = 0; shard < StoreRoot::kShards; ++shard) {
    const std::string folder = StoreRoot::shard_name(shard);
    const std::string folder_path = root_.full_path("objects/" + folder);
    KVCODEC_CHECK(for_each_entry(
        root_.objects(), folder.c_str(), folder_path, [&](const char* entry) -> Status {
          std::string name = StoreRoot::object_name_of_file(entry);
          // A file that was moved to another shard would be listed and not found.
          if (name.empty() || !name.starts_with(prefix)) return ok_status();
          const std::string file = StoreRoot::object_path(name);
          if (!file.starts_with(folder)) return ok_status();
          KVCODEC_TRY(const auto info, stat_file(root_.objects(), file, folder_path));
          if (info) visit(to_object_stat(std::move(name), *info));
          return ok_status();
        }));
  }
  return ok_status();
}

// Counts the objects and finds the least recently used ones. Requires both locks.
Status FileStore::recount(UsageLedger& ledger) {
  uint64_t total = 0;
  candidates_.clear();
  KVCODEC_CHECK(for_each_object("", [&](ObjectStat&& object) {
    total += object.bytes;
    candidates_.push_back(std::move(object));
    if (candidates_.size() >= 2 * kMaxCandidates) keep_oldest(candidates_, kMaxCandidates);
  }));
  keep_oldest(candidates_, kMaxCandidates);
  std::sort(candidates_.begin(), candidates_.end(), used_later);
  ledger.set_total(total);
  return ok_status();
}

// Evicts others until `name`, now of old_bytes, may become new_bytes. Requires both locks.
Status FileStore::make_room(UsageLedger& ledger, std::string_view name, uint64_t old_bytes,
                            uint64_t new_bytes) {
  if (options_.max_bytes == 0) return ok_status();
  const auto fits = [&] {
    return ledger.total() && *ledger.total() >= old_bytes &&
           *ledger.total() - old_bytes + new_bytes <= options_.max_bytes;
  };
  // First with what an earlier count found, in which objects that were used since stay.
  while (ledger.total() && !fits() && !candidates_.empty()) {
    KVCODEC_CHECK(evict_oldest(ledger, name, true));
  }
  // Then count; now those go too, or a busy reader could keep the store above its bound.
  while (!fits()) {
    KVCODEC_CHECK(recount(ledger));
    if (fits()) break;
    const uint64_t before = *ledger.total();
    while (!fits() && !candidates_.empty()) KVCODEC_CHECK(evict_oldest(ledger, name, false));
    if (*ledger.total() == before) {
      return make_error(ErrorCode::internal,
                        "{}: no object can be evicted to store '{}' of {} bytes; {} of {} bytes "
                        "are in use",
                        root_.path(), name, new_bytes, before, options_.max_bytes);
    }
  }
  return ok_status();
}

// Takes the last candidate, unless it is `except` or, with only_if_unused, was used meanwhile.
Status FileStore::evict_oldest(UsageLedger& ledger, std::string_view except, bool only_if_unused) {
  const ObjectStat candidate = std::move(candidates_.back());
  candidates_.pop_back();
  if (candidate.name == except) return ok_status();
  const std::string target = StoreRoot::object_path(candidate.name);
  const std::string path = full_object_path(candidate.name);
  KVCODEC_TRY(const auto info, stat_file(root_.objects(), target, path));
  if (!info) return ok_status();
  if (only_if_unused && from_timespec(info->st_mtim) != candidate.last_used) return ok_status();
  KVCODEC_CHECK(ledger.begin_change());
  if (::unlinkat(root_.objects(), target.c_str(), 0) != 0) return os_error(errno, "evict", path);
  ledger.end_change(static_cast<uint64_t>(info->st_size), 0);
  return ok_status();
}

}  // namespace kvcodec
