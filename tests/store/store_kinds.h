// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "faulty_store.h"
#include "kvcodec/store.h"
#include "store/file_store.h"
#include "store/memory_store.h"
#include "temp_dir.h"

namespace kvcodec {

// A store of some kind with all that it stands on; gone in the reverse order.
struct StoreFixture {
  std::shared_ptr<void> ground;  // a folder, a server
  std::unique_ptr<Store> below;
  std::unique_ptr<Store> store;
};

struct StoreKind {
  const char* name;
  StoreFixture (*make)(uint64_t max_bytes);
  // It keeps max_bytes, evicting by last use, and counts gets as uses.
  bool bounded = true;
  // Of removals at once, one succeeds.
  bool removes_once = true;
  // Concurrency tests do this part of their rounds: each call crosses to another process.
  int slowness = 1;
  // Why it cannot run here; empty where it can.
  std::string (*missing)() = nullptr;
};
inline void PrintTo(const StoreKind& kind, std::ostream* out) { *out << kind.name; }

// The kinds that this program tests: local_kinds.cpp, remote_kinds.cpp. Every kind of store passes
// the same tests; a new kind is one more line there.
std::vector<StoreKind> store_kinds();

inline std::vector<StoreKind> bounded_kinds() {
  auto kinds = store_kinds();
  std::erase_if(kinds, [](const StoreKind& kind) { return !kind.bounded; });
  return kinds;
}

inline std::vector<StoreKind> once_removing_kinds() {
  auto kinds = store_kinds();
  std::erase_if(kinds, [](const StoreKind& kind) { return !kind.removes_once; });
  return kinds;
}

class EveryStore : public testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    const std::string missing = GetParam().missing != nullptr ? GetParam().missing() : "";
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
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
