// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/store.h"
#include "store/store_root.h"
#include "store/usage_ledger.h"

namespace kvcodec {

struct FileStoreOptions {
  uint64_t max_bytes = 0;  // as StoreOptions
  // A get records its use only where the last one recorded is older than this.
  std::chrono::nanoseconds use_interval = std::chrono::minutes(1);
};

// Objects as files below one folder, see StoreRoot and docs/stores.md.
//
// put writes to a temporary, makes it durable and renames it into place under the store's lock
// (UsageLedger), making room before; so the sum of the objects never exceeds the bound, and an
// object is there whole or not at all at every moment. get takes no lock: it opens the file once,
// and what it then reads is one version of the object, even if that is replaced or evicted
// meanwhile. Two gets may see two versions; get_object does one.
//
// The time of last use is the file's mtime: put sets it, get moves it on. atime would do the same
// if file systems kept it, but most are mounted noatime or relatime.
class FileStore final : public Store {
 public:
  static Result<std::unique_ptr<FileStore>> open(const std::string& path,
                                                 const FileStoreOptions& options = {});

  Result<size_t> get(std::string_view name, std::span<std::byte> out, uint64_t offset) override;
  Status put(std::string_view name, std::span<const std::byte> bytes) override;
  Result<ObjectStat> stat(std::string_view name) override;
  // Also sweeps the temporaries of dead writers.
  Result<std::vector<ObjectStat>> list(std::string_view prefix) override;
  Status remove(std::string_view name) override;

 private:
  using Visitor = std::function<void(ObjectStat&&)>;

  FileStore(StoreRoot root, const FileStoreOptions& options)
      : root_(std::move(root)), options_(options) {}
  std::string full_object_path(std::string_view name) const;
  Status for_each_object(std::string_view prefix, const Visitor& visit);
  Status recount(UsageLedger& ledger);
  Status make_room(UsageLedger& ledger, std::string_view name, uint64_t old_bytes,
                   uint64_t new_bytes);
  Status evict_oldest(UsageLedger& ledger, std::string_view except, bool only_if_unused);

  StoreRoot root_;
  FileStoreOptions options_;
  std::mutex mutex_;  // guards candidates_; taken before the store's lock
  // The least recently used objects when they were last counted, the oldest at the back. One that
  // was used since is no longer what it says there and is passed over; all others in the store are
  // newer than these, so that evicting from the back is exact LRU.
  std::vector<ObjectStat> candidates_;
};

}  // namespace kvcodec
