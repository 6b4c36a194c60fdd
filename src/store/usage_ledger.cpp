// SPDX-License-Identifier: Apache-2.0
#include "store/usage_ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/bytes.h"
#include "base/hash.h"

namespace kvcodec {
namespace {

// Record: boot id (36 bytes), total (u64), checksum of the 44 bytes before (u64). Private to this
// machine: it may change with any version, a record of another form is counted anew.
constexpr size_t kBootIdBytes = 36;
constexpr size_t kCheckedBytes = kBootIdBytes + sizeof(uint64_t);
using Record = std::array<std::byte, kCheckedBytes + sizeof(uint64_t)>;
using BootId = std::array<std::byte, kBootIdBytes>;

// None where there is no /proc: then no record is ever valid, which is slow but right.
const std::optional<BootId>& boot_id() {
  static const std::optional<BootId> id = []() -> std::optional<BootId> {
    const UniqueFd fd = open_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", O_RDONLY);
    BootId bytes;
    if (!fd.valid()) return std::nullopt;
    auto n = read_at(fd.get(), bytes, 0, "boot_id");
    if (!n.ok() || *n != bytes.size()) return std::nullopt;
    return bytes;
  }();
  return id;
}

bool write_at(int fd, std::span<const std::byte> bytes, size_t offset) {
  return ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(bytes.size());
}

std::optional<uint64_t> parse(const Record& record) {
  const std::span<const std::byte> bytes(record);
  const auto checked = bytes.first(kCheckedBytes);
  if (load_le<uint64_t>(record.data() + kCheckedBytes) != checksum64(checked)) return std::nullopt;
  if (!boot_id() || std::memcmp(record.data(), boot_id()->data(), kBootIdBytes) != 0) {
    return std::nullopt;
  }
  return load_le<uint64_t>(record.data() + kBootIdBytes);
}

}  // namespace

Result<UsageLedger> UsageLedger::lock(const StoreRoot& root) {
  const std::string path = root.full_path(kLockFile);
  UniqueFd fd = open_at(root.root(), kLockFile, O_RDWR | O_CREAT | O_NOFOLLOW, 0666);
  if (!fd.valid()) return os_error(errno, "open", path);
  KVCODEC_CHECK(lock_file(fd.get(), path));
  UsageLedger ledger(std::move(fd), path);
  Record record;
  KVCODEC_TRY(const size_t n, read_at(ledger.fd_.get(), record, 0, path));
  if (n == record.size()) ledger.total_ = parse(record);
  return ledger;
}

UsageLedger::~UsageLedger() {
  // Not left to close(): a child forked meanwhile still has the open file, and with it the lock.
  if (fd_.valid()) ::flock(fd_.get(), LOCK_UN);
}

Status UsageLedger::begin_change() {
  const std::array<std::byte, sizeof(uint64_t)> no_checksum{};
  if (!write_at(fd_.get(), no_checksum, kCheckedBytes)) return os_error(errno, "write", path_);
  return ok_status();
}

void UsageLedger::end_change(uint64_t removed, uint64_t added) {
  // A sum below what was there is wrong: somebody put files there by hand.
  if (total_ && *total_ < removed) total_.reset();
  if (!total_) return;
  *total_ += added - removed;
  if (!boot_id()) return;
  ByteWriter record;
  record.put_bytes(*boot_id());
  record.put(*total_);
  record.put(checksum64(record.bytes()));
  write_at(fd_.get(), record.bytes(), 0);
}

}  // namespace kvcodec
