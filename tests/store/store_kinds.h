// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "faulty_store.h"
#include "kvcodec/store.h"
#include "store/file_store.h"
#include "store/memory_store.h"
#include "temp_dir.h"

namespace kvcodec {

// A store of some kind with all that it stands on.
struct StoreFixture {
  std::unique_ptr<TempDir> dir;
  std::unique_ptr<Store> below;
  std::unique_ptr<Store> store;
};

struct StoreKind {
  const char* name;
  StoreFixture (*make)(uint64_t max_bytes);
};
inline void PrintTo(const StoreKind& kind, std::ostream* out) { *out << kind.name; }

inline StoreFixture make_memory(uint64_t max_bytes) {
  return {nullptr, nullptr, std::make_unique<MemoryStore>(StoreOptions{max_bytes})};
}

// Records each use, so that the order of uses is exact.
inline StoreFixture make_file(uint64_t max_bytes) {
  StoreFixture fixture;
  fixture.dir = std::make_unique<TempDir>();
  FileStoreOptions options;
  options.max_bytes = max_bytes;
  options.use_interval = std::chrono::nanoseconds(0);
  auto store = FileStore::open(*fixture.dir / "store", options);
  if (!store.ok()) throw std::runtime_error(store.error().message);
  fixture.store = *std::move(store);
  return fixture;
}

inline StoreFixture make_limited(uint64_t max_bytes) {
  StoreFixture fixture = make_memory(max_bytes);
  fixture.below = std::move(fixture.store);
  fixture.store = limit_bandwidth(*fixture.below, 10e9);
  return fixture;
}

inline StoreFixture make_faulty(uint64_t max_bytes) {
  StoreFixture fixture = make_memory(max_bytes);
  fixture.below = std::move(fixture.store);
  fixture.store = std::make_unique<FaultyStore>(*fixture.below);
  return fixture;
}

// Every kind of store passes the same tests; a new kind is one more line here.
inline std::vector<StoreKind> store_kinds() {
  return {{"memory", make_memory},
          {"file", make_file},
          {"limited", make_limited},
          {"faulty", make_faulty}};
}

class EveryStore : public testing::TestWithParam<StoreKind> {
 protected:
  Store& open(uint64_t max_bytes = 0) {
    fixture_ = GetParam().make(max_bytes);
    return *fixture_.store;
  }

 private:
  StoreFixture fixture_;
};

inline std::string kind_name(const testing::TestParamInfo<StoreKind>& info) {
  return info.param.name;
}

// Expects a failure with `code` and, in its message, `text`.
template <typename T>
testing::AssertionResult fails_with(const Result<T>& result, ErrorCode code,
                                    const std::string& text = {}) {
  if (result.ok()) return testing::AssertionFailure() << "it succeeded";
  const Error& error = result.error();
  if (error.code != code) {
    return testing::AssertionFailure() << error_code_name(error.code) << ": " << error.message;
  }
  if (error.message.find(text) == std::string::npos) {
    return testing::AssertionFailure() << "no '" << text << "' in: " << error.message;
  }
  return testing::AssertionSuccess();
}

template <typename T>
testing::AssertionResult succeeds(const Result<T>& result) {
  if (result.ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << error_code_name(result.error().code) << ": " << result.error().message;
}

inline std::vector<std::string> names_of(Store& store, std::string_view prefix = {}) {
  std::vector<std::string> names;
  const auto objects = store.list(prefix);
  EXPECT_TRUE(succeeds(objects));
  if (objects.ok()) {
    for (const auto& object : *objects) names.push_back(object.name);
  }
  return names;
}

}  // namespace kvcodec
