// SPDX-License-Identifier: Apache-2.0
// What every Store promises about its bound, and collect_garbage.
#include <array>
#include <random>

#include "sealed_bytes.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

using StoreEviction = EveryStore;
INSTANTIATE_TEST_SUITE_P(All, StoreEviction, testing::ValuesIn(bounded_kinds()), kind_name);

using Names = std::vector<std::string>;

void put_sized(Store& store, const std::string& name, size_t bytes) {
  ASSERT_TRUE(succeeds(store.put(name, std::vector<std::byte>(bytes))));
}

void use(Store& store, const std::string& name) {
  std::array<std::byte, 1> out;
  ASSERT_TRUE(succeeds(store.get(name, out)));
}

TEST_P(StoreEviction, EvictsLeastRecentlyUsed) {
  Store& store = open(300);
  for (const char* name : {"a", "b", "c"}) put_sized(store, name, 100);
  EXPECT_EQ(names_of(store), (Names{"a", "b", "c"})) << "a full store is within its bound";
  use(store, "a");
  put_sized(store, "d", 100);
  EXPECT_EQ(names_of(store), (Names{"a", "c", "d"}));
  use(store, "c");
  put_sized(store, "e", 100);
  EXPECT_EQ(names_of(store), (Names{"c", "d", "e"}));
  put_sized(store, "f", 101);
  EXPECT_EQ(names_of(store), (Names{"e", "f"}));
  put_sized(store, "g", 99);
  EXPECT_EQ(names_of(store), (Names{"e", "f", "g"}));
}

TEST_P(StoreEviction, ReplacingCountsTheDifference) {
  Store& store = open(300);
  for (const char* name : {"a", "b", "c"}) put_sized(store, name, 100);
  put_sized(store, "a", 100);
  EXPECT_EQ(names_of(store), (Names{"a", "b", "c"}));
  put_sized(store, "a", 150);
  EXPECT_EQ(names_of(store), (Names{"a", "c"}));
  put_sized(store, "a", 300);
  EXPECT_EQ(names_of(store), Names{"a"});
  put_sized(store, "a", 1);
  put_sized(store, "b", 299);
  EXPECT_EQ(names_of(store), (Names{"a", "b"}));
}

TEST_P(StoreEviction, RemovalMakesRoom) {
  Store& store = open(300);
  for (const char* name : {"a", "b", "c"}) put_sized(store, name, 100);
  ASSERT_TRUE(succeeds(store.remove("b")));
  put_sized(store, "d", 100);
  EXPECT_EQ(names_of(store), (Names{"a", "c", "d"}));
}

TEST_P(StoreEviction, RefusesAnObjectAboveTheBoundAndKeepsTheOthers) {
  Store& store = open(300);
  put_sized(store, "a", 100);
  put_sized(store, "b", 200);
  for (const char* name : {"c", "a"}) {
    EXPECT_TRUE(fails_with(store.put(name, std::vector<std::byte>(301)),
                           ErrorCode::invalid_argument, "bounded to 300 bytes"));
  }
  EXPECT_EQ(names_of(store), (Names{"a", "b"}));
  EXPECT_EQ(store.stat("a")->bytes, 100u);
  put_sized(store, "c", 300);
  EXPECT_EQ(names_of(store), Names{"c"});
}

// A model of the store: a list of names from the least to the most recently used.
TEST_P(StoreEviction, FollowsAModelThroughRandomUse) {
  constexpr uint64_t kBound = 1000;
  Store& store = open(kBound);
  std::vector<std::pair<std::string, uint64_t>> model;
  const auto find = [&](const std::string& name) {
    return std::find_if(model.begin(), model.end(), [&](auto& m) { return m.first == name; });
  };
  std::mt19937 random(7);
  for (int step = 0; step < 400; ++step) {
    const std::string name = fmt::format("n{}", random() % 20);
    const auto known = find(name);
    switch (random() % 4) {
      case 0:
        if (known != model.end()) {
          use(store, name);
          std::rotate(known, known + 1, model.end());
        }
        break;
      case 1:
        if (known != model.end() && random() % 2) {
          ASSERT_TRUE(succeeds(store.remove(name)));
          model.erase(known);
        }
        break;
      default: {
        const uint64_t bytes = random() % 300;
        put_sized(store, name, bytes);
        if (known != model.end()) model.erase(known);
        uint64_t total = bytes;
        for (const auto& object : model) total += object.second;
        while (total > kBound) {
          total -= model.front().second;
          model.erase(model.begin());
        }
        model.emplace_back(name, bytes);
      }
    }
    Names expected;
    for (const auto& object : model) expected.push_back(object.first);
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(names_of(store), expected) << "step " << step;
  }
}

TEST_P(StoreEviction, CollectGarbageRemovesTheOldest) {
  Store& store = open();
  for (const char* name : {"a", "b", "c", "d"}) put_sized(store, name, 100);
  use(store, "a");
  auto report = collect_garbage(store, 1000);
  ASSERT_TRUE(succeeds(report));
  EXPECT_EQ(report->objects_before, 4u);
  EXPECT_EQ(report->bytes_before, 400u);
  EXPECT_EQ(report->objects_removed, 0u);
  EXPECT_EQ(report->bytes_removed, 0u);
  report = collect_garbage(store, 250);
  ASSERT_TRUE(succeeds(report));
  EXPECT_EQ(report->objects_removed, 2u);
  EXPECT_EQ(report->bytes_removed, 200u);
  EXPECT_EQ(names_of(store), (Names{"a", "d"}));
  report = collect_garbage(store, 200);
  ASSERT_TRUE(succeeds(report));
  EXPECT_EQ(report->objects_removed, 0u) << "exactly the bound is within it";
  report = collect_garbage(store, 0);
  ASSERT_TRUE(succeeds(report));
  EXPECT_EQ(report->objects_removed, 2u);
  EXPECT_TRUE(names_of(store).empty());
  report = collect_garbage(store, 0);
  ASSERT_TRUE(succeeds(report));
  EXPECT_EQ(report->objects_before, 0u);
}

}  // namespace
}  // namespace kvcodec
