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
  // Waits until all that was put is where it will stay: unavailable, with what is missing, where
  // that takes longer than `timeout`. Only a tiered store that writes back has to wait.
  virtual Status flush(std::chrono::milliseconds timeout);
};

struct StoreOptions {
  // 0: unbounded; else the least recently used objects are evicted. Memory and file stores only:
  // what cannot keep the bound refuses it (unsupported).
  uint64_t max_bytes = 0;

  // The rest is for stores behind a network. An attempt fails where connecting takes longer than
  // the first, or no byte moves for the second; failed attempts are repeated, ever later, and the
  // call fails with unavailable when the deadline is over (0: after ten attempts).
  std::chrono::milliseconds connect_timeout{5000};
  std::chrono::milliseconds stall_timeout{10000};
  std::chrono::milliseconds deadline{60000};
  uint32_t connections = 16;  // at most, kept open; more callers wait for one
  std::string ca_file{};      // PEM certificates to trust; empty: the system's
  // Seals objects with AES-256-GCM under the keys in this file (docs/stores.md, "Encryption").
  // Empty: those of KVCODEC_KEY_FILE or KVCODEC_KEY, where one is set.
  std::string encryption_key_file{};
};

// Opens the store that a URI names: mem:, file:///path, redis://, rediss://, s3://, http://,
// https:// or tiered: (docs/stores.md has all forms and options). Stores behind a network are not
// contacted before they are used. unsupported names the schemes this build knows.
Result<std::unique_ptr<Store>> open_store(std::string_view uri, const StoreOptions& options = {});

// The URI as messages and logs may show it: passwords and signatures replaced by ***.
std::string redact_uri(std::string_view uri);

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

struct TieredOptions {
  // Objects found below are put into the levels above, whole, up to this size; 0: none are.
  uint64_t promote_max_bytes = uint64_t{256} << 20;
  // put returns when the levels above the last one have the object; the last one gets it later,
  // from a copy in memory of at most queue_bytes in all. Beyond that put waits. A process that dies
  // takes with it what only memory has; flush says when nothing is left to lose, and destruction
  // waits for it as long as flush_timeout.
  bool write_back = false;
  uint64_t queue_bytes = uint64_t{256} << 20;
  std::chrono::milliseconds flush_timeout{60000};
};
// Several stores as one, the fastest first and the one that has everything last: say memory over a
// folder over S3. get and stat answer from the first level that has the object. Without write_back,
// put succeeds when the last level has it. A level that is down is passed over; what it may have
// and no other has, is its error, never not_found. At least two levels: invalid_argument.
Result<std::unique_ptr<Store>> make_tiered_store(std::vector<std::unique_ptr<Store>> levels,
                                                 const TieredOptions& options = {});

struct GcReport {
  uint64_t objects_before = 0, bytes_before = 0;
  uint64_t objects_removed = 0, bytes_removed = 0;
};
// Removes the least recently used objects until at most max_bytes remain.
Result<GcReport> collect_garbage(Store& store, uint64_t max_bytes);

}  // namespace kvcodec
