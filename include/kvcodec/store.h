// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/result.h"

namespace kvcodec {

struct ObjectStat {
  std::string name;
  uint64_t bytes = 0;
  std::chrono::system_clock::time_point last_used;  // last put or get, as well as the store knows
};

// Keeps objects by name. Names are 1 to 255 bytes of [a-z0-9._/-], no empty, "." or ".." parts.
// Every method is thread-safe, and a store may be shared by several processes. A reader sees an
// object whole or not at all, whatever happens to its writer.
class Store {
 public:
  virtual ~Store() = default;

  // Reads up to out.size() bytes from `offset`; returns how many (fewer only at the end).
  // not_found where there is no such object. Counts as a use.
  virtual Result<size_t> get(std::string_view name, std::span<std::byte> out,
                             uint64_t offset = 0) = 0;
  // Stores or replaces an object, atomically and durably.
  virtual Status put(std::string_view name, std::span<const std::byte> bytes) = 0;
  virtual Result<ObjectStat> stat(std::string_view name) = 0;
  // All objects whose names start with `prefix`, sorted by name.
  virtual Result<std::vector<ObjectStat>> list(std::string_view prefix = "") = 0;
  // not_found where there is no such object.
  virtual Status remove(std::string_view name) = 0;
};

struct StoreOptions {
  uint64_t max_bytes = 0;  // 0: unbounded; else the least recently used objects are evicted
};

// "mem:" (lives as long as the Store) or "file:///absolute/path" (created where missing).
// unsupported names the schemes this build knows.
Result<std::unique_ptr<Store>> open_store(std::string_view uri, const StoreOptions& options = {});

// A whole object. corrupt where it is larger than max_bytes.
Result<std::vector<std::byte>> get_object(Store& store, std::string_view name, uint64_t max_bytes);

// Presents `store` as if behind a link: get and put take the time their bytes need at
// `bits_per_second`, all callers together. For demos and tests. Borrows `store`.
std::unique_ptr<Store> limit_bandwidth(Store& store, double bits_per_second);
// The same over a link whose speed changes: the steps follow each other from the first transfer on,
// again and again. A step of 0 is an outage.
struct LinkTrace {
  struct Step {
    double seconds = 0, bits_per_second = 0;
  };
  std::vector<Step> steps;
};
std::unique_ptr<Store> limit_bandwidth(Store& store, const LinkTrace& trace);

struct GcReport {
  uint64_t objects_before = 0, bytes_before = 0;
  uint64_t objects_removed = 0, bytes_removed = 0;
};
// Removes the least recently used objects until at most max_bytes remain.
Result<GcReport> collect_garbage(Store& store, uint64_t max_bytes);

}  // namespace kvcodec
