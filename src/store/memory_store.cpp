// SPDX-License-Identifier: Apache-2.0
#include "store/memory_store.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "store/store_name.h"

namespace kvcodec {
namespace {

Error no_object(std::string_view name) {
  return make_error(ErrorCode::not_found, "no object '{}' in the memory store", name);
}

}  // namespace

Result<size_t> MemoryStore::get(std::string_view name, std::span<std::byte> out, uint64_t offset) {
  KVCODEC_CHECK(validate_name(name));
  std::shared_ptr<const std::vector<std::byte>> bytes;
  {
    const std::lock_guard guard(mutex_);
    const auto object = objects_.find(name);
    if (object == objects_.end()) return no_object(name);
    auto use = by_use_.extract(object->second.last_used);
    object->second.last_used = use.key() = next_time();
    by_use_.insert(std::move(use));
    bytes = object->second.bytes;
  }
  if (offset >= bytes->size()) return size_t{0};
  const size_t n = std::min<size_t>(out.size(), bytes->size() - offset);
  if (n > 0) std::memcpy(out.data(), bytes->data() + offset, n);
  return n;
}

Status MemoryStore::put(std::string_view name, std::span<const std::byte> bytes) {
  KVCODEC_CHECK(validate_name(name));
  if (options_.max_bytes > 0 && bytes.size() > options_.max_bytes) {
    return make_error(ErrorCode::invalid_argument,
                      "object '{}' of {} bytes; the memory store is bounded to {} bytes", name,
                      bytes.size(), options_.max_bytes);
  }
  auto copy = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  const std::lock_guard guard(mutex_);
  if (const auto old = objects_.find(name); old != objects_.end()) erase(old);
  while (options_.max_bytes > 0 && total_bytes_ + bytes.size() > options_.max_bytes) {
    erase(by_use_.begin()->second);
  }
  const Time now = next_time();
  const auto object = objects_.emplace(std::string(name), Object{std::move(copy), now}).first;
  by_use_.emplace(now, object);
  total_bytes_ += bytes.size();
  return ok_status();
}

Result<ObjectStat> MemoryStore::stat(std::string_view name) {
  KVCODEC_CHECK(validate_name(name));
  const std::lock_guard guard(mutex_);
  const auto object = objects_.find(name);
  if (object == objects_.end()) return no_object(name);
  return ObjectStat{object->first, object->second.bytes->size(), object->second.last_used};
}

Result<std::vector<ObjectStat>> MemoryStore::list(std::string_view prefix) {
  const std::lock_guard guard(mutex_);
  std::vector<ObjectStat> stats;
  for (auto object = objects_.lower_bound(prefix);
       object != objects_.end() && object->first.starts_with(prefix); ++object) {
    stats.push_back({object->first, object->second.bytes->size(), object->second.last_used});
  }
  return stats;
}

Status MemoryStore::remove(std::string_view name) {
  KVCODEC_CHECK(validate_name(name));
  const std::lock_guard guard(mutex_);
  const auto object = objects_.find(name);
  if (object == objects_.end()) return no_object(name);
  erase(object);
  return ok_status();
}

MemoryStore::Time MemoryStore::next_time() {
  const Time now = std::chrono::system_clock::now();
  if (by_use_.empty()) return now;
  // Later than all others, also where the clock stands still or was set back.
  return std::max(now, by_use_.rbegin()->first + Time::duration(1));
}

void MemoryStore::erase(Objects::iterator object) {
  total_bytes_ -= object->second.bytes->size();
  by_use_.erase(object->second.last_used);
  objects_.erase(object);
}

}  // namespace kvcodec
