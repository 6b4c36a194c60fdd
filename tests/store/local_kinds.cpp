// SPDX-License-Identifier: Apache-2.0
// The stores that need no other process.
#include <stdexcept>

#include "faulty_store.h"
#include "store/file_store.h"
#include "store/memory_store.h"
#include "store/sealed_store.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

StoreFixture make_memory(uint64_t max_bytes) {
  return {nullptr, nullptr, std::make_unique<MemoryStore>(StoreOptions{.max_bytes = max_bytes})};
}

// Records each use, so that the order of uses is exact.
StoreFixture make_file(uint64_t max_bytes) {
  const auto dir = std::make_shared<TempDir>();
  FileStoreOptions options;
  options.max_bytes = max_bytes;
  options.use_interval = std::chrono::nanoseconds(0);
  auto store = FileStore::open(*dir / "store", options);
  if (!store.ok()) throw std::runtime_error(store.error().message);
  return {dir, nullptr, *std::move(store)};
}

StoreFixture make_limited(uint64_t max_bytes) {
  StoreFixture fixture = make_memory(max_bytes);
  fixture.below = std::move(fixture.store);
  fixture.store = limit_bandwidth(*fixture.below, 10e9);
  return fixture;
}

StoreFixture make_faulty(uint64_t max_bytes) {
  StoreFixture fixture = make_memory(max_bytes);
  fixture.below = std::move(fixture.store);
  fixture.store = std::make_unique<FaultyStore>(*fixture.below);
  return fixture;
}

StoreFixture make_sealed_store(uint64_t max_bytes) {
  auto keys = parse_keys(std::string(64, '7'), "test");
  return {nullptr, nullptr,
          std::make_unique<SealedStore>(
              std::make_unique<MemoryStore>(StoreOptions{.max_bytes = max_bytes}), *keys)};
}

StoreFixture make_tiered(const TieredOptions& options) {
  StoreFixture fixture = make_file(0);
  std::vector<std::unique_ptr<Store>> levels;
  levels.push_back(std::make_unique<MemoryStore>(StoreOptions{.max_bytes = 30000}));
  levels.push_back(std::make_unique<MemoryStore>(StoreOptions{.max_bytes = 100000}));
  levels.push_back(std::move(fixture.store));
  fixture.store = *make_tiered_store(std::move(levels), options);
  return fixture;
}

StoreFixture make_tiered_through(uint64_t) { return make_tiered({}); }
StoreFixture make_tiered_back(uint64_t) {
  return make_tiered({.write_back = true, .queue_bytes = 20000});
}

}  // namespace

std::vector<StoreKind> store_kinds() {
  return {{"memory", make_memory},
          {"file", make_file},
          {"limited", make_limited},
          {"faulty", make_faulty},
          // Its bound is one of sealed bytes.
          {"sealed", make_sealed_store, false},
          {"tiered", make_tiered_through, false},
          {"tiered_back", make_tiered_back, false}};
}

}  // namespace kvcodec
