// SPDX-License-Identifier: Apache-2.0
// What is built on the Store interface and works for every store.
#include <algorithm>

#include "base/error.h"
#include "kvcodec/store.h"

namespace kvcodec {

Status Store::flush(std::chrono::milliseconds) { return ok_status(); }

Result<std::vector<std::byte>> get_object(Store& store, std::string_view name, uint64_t max_bytes) {
  constexpr int kMaxAttempts = 10;
  uint64_t expected = 0, found = 0;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    KVCODEC_TRY(const ObjectStat before, store.stat(name));
    if (before.bytes > std::min<uint64_t>(max_bytes, PTRDIFF_MAX - 1)) {
      return make_error(ErrorCode::corrupt, "object '{}' has {} bytes; expected at most {}", name,
                        before.bytes, max_bytes);
    }
    // One get for the whole, so that it is of one version; the byte more shows one that has grown.
    std::vector<std::byte> bytes(before.bytes + 1);
    KVCODEC_TRY(const size_t n, store.get(name, bytes, 0));
    if (n == before.bytes) {
      bytes.resize(n);
      return bytes;
    }
    expected = before.bytes;
    found = n;
  }
  return make_error(ErrorCode::unavailable,
                    "object '{}': read {} bytes where {} were expected, {} times; it is being "
                    "replaced or the store returns too little",
                    name, found, expected, kMaxAttempts);
}

namespace {

// Removes `object`; true where it is gone, by us or by others. With only_if_unused it stays where
// it was used or replaced since it was listed.
Result<bool> remove_listed(Store& store, const ObjectStat& object, bool only_if_unused,
                           GcReport& report) {
  const auto now = store.stat(object.name);
  if (!now.ok() && now.error().code == ErrorCode::not_found) return true;
  if (!now.ok()) return now.error();
  if (only_if_unused && now->last_used != object.last_used) return false;
  const Status removed = store.remove(object.name);
  if (removed.ok()) {
    ++report.objects_removed;
    report.bytes_removed += now->bytes;
  } else if (removed.error().code != ErrorCode::not_found) {
    return removed.error();
  }
  return true;
}

}  // namespace

Result<GcReport> collect_garbage(Store& store, uint64_t max_bytes) {
  GcReport report;
  // The second round takes what was in use in the first, or readers could keep everything.
  for (const bool only_if_unused : {true, false}) {
    KVCODEC_TRY(auto objects, store.list());
    uint64_t remaining = 0;
    for (const auto& object : objects) remaining += object.bytes;
    if (only_if_unused) {
      report.objects_before = objects.size();
      report.bytes_before = remaining;
    }
    std::stable_sort(objects.begin(), objects.end(),
                     [](const auto& a, const auto& b) { return a.last_used < b.last_used; });
    for (const auto& object : objects) {
      if (remaining <= max_bytes) return report;
      KVCODEC_TRY(const bool gone, remove_listed(store, object, only_if_unused, report));
      if (gone) remaining -= object.bytes;
    }
    if (remaining <= max_bytes) break;
  }
  return report;
}

}  // namespace kvcodec
