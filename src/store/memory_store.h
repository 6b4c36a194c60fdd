// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/store.h"

namespace kvcodec {

// Objects in this process's memory. The lock is held to look up, never to copy: an object is
// shared by the readers that copy from it, and lives until the last of them is done.
class MemoryStore final : public Store {
 public:
  explicit MemoryStore(const StoreOptions& options = {}) : options_(options) {}

  Result<size_t> get(std::string_view name, std::span<std::byte> out, uint64_t offset) override;
  Status put(std::string_view name, std::span<const std::byte> bytes) override;
  Result<ObjectStat> stat(std::string_view name) override;
  Result<std::vector<ObjectStat>> list(std::string_view prefix) override;
  Status remove(std::string_view name) override;

 private:
  using Time = std::chrono::system_clock::time_point;
  struct Object {
    std::shared_ptr<const std::vector<std::byte>> bytes;
    Time last_used;
  };
  using Objects = std::map<std::string, Object, std::less<>>;

  // All require the lock.
  Time next_time();
  void erase(Objects::iterator object);

  const StoreOptions options_;
  std::mutex mutex_;
  Objects objects_;
  std::map<Time, Objects::iterator> by_use_;  // of all objects; times differ
  uint64_t total_bytes_ = 0;
};

}  // namespace kvcodec
