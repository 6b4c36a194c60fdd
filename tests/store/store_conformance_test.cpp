// SPDX-License-Identifier: Apache-2.0
// What every Store promises (kvcodec/store.h), one object or one caller at a time.
#include <algorithm>
#include <array>
#include <numeric>

#include "sealed_bytes.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

using StoreConformance = EveryStore;
INSTANTIATE_TEST_SUITE_P(All, StoreConformance, testing::ValuesIn(store_kinds()), kind_name);

constexpr uint64_t kNoLimit = UINT64_MAX;

TEST_P(StoreConformance, ReturnsWhatWasPut) {
  Store& store = open();
  for (const size_t size : {0u, 1u, 31u, 4096u, 1u << 20}) {
    std::vector<std::byte> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
    ASSERT_TRUE(succeeds(store.put("object", bytes)));
    const auto back = get_object(store, "object", kNoLimit);
    ASSERT_TRUE(succeeds(back));
    EXPECT_EQ(*back, bytes) << size;
    const auto stat = store.stat("object");
    ASSERT_TRUE(succeeds(stat));
    EXPECT_EQ(stat->name, "object");
    EXPECT_EQ(stat->bytes, size);
  }
}

TEST_P(StoreConformance, GetReadsRanges) {
  Store& store = open();
  const auto bytes = make_sealed("a", 1, 1000);
  ASSERT_TRUE(succeeds(store.put("a", bytes)));
  struct Case {
    uint64_t offset;
    size_t room, expected;
  };
  for (const auto& [offset, room, expected] :
       {Case{0, 10, 10}, Case{0, 1000, 1000}, Case{0, 1001, 1000}, Case{1, 1000, 999},
        Case{990, 5, 5}, Case{999, 100, 1}, Case{1000, 100, 0}, Case{5000, 100, 0},
        Case{UINT64_MAX, 100, 0}, Case{0, 0, 0}, Case{2000, 0, 0}}) {
    std::vector<std::byte> out(room, std::byte{0xee});
    const auto n = store.get("a", out, offset);
    ASSERT_TRUE(succeeds(n)) << offset;
    ASSERT_EQ(*n, expected) << offset;
    EXPECT_TRUE(std::equal(out.begin(), out.begin() + expected, bytes.begin() + offset % 1001));
    EXPECT_TRUE(std::all_of(out.begin() + expected, out.end(), [](std::byte b) {
      return b == std::byte{0xee};
    })) << "bytes beyond the answer were written";
  }
}

TEST_P(StoreConformance, PutReplacesWithLongerAndShorter) {
  Store& store = open();
  for (const size_t size : {100u, 5000u, 40u, 0u, 300u}) {
    const std::vector<std::byte> bytes(size, static_cast<std::byte>(size));
    ASSERT_TRUE(succeeds(store.put("a", bytes)));
    EXPECT_EQ(*get_object(store, "a", kNoLimit), bytes);
    EXPECT_EQ(names_of(store), std::vector<std::string>{"a"});
  }
}

TEST_P(StoreConformance, PutTakesACopy) {
  Store& store = open();
  auto bytes = to_bytes("first");
  ASSERT_TRUE(succeeds(store.put("a", bytes)));
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  EXPECT_EQ(*get_object(store, "a", kNoLimit), to_bytes("first"));
}

TEST_P(StoreConformance, AbsentObjectsAreNotFound) {
  Store& store = open();
  ASSERT_TRUE(succeeds(store.put("a/b", to_bytes("x"))));
  std::array<std::byte, 4> out;
  for (const char* name : {"b", "a", "a/b/c", "a/bb", "a-b", "a.b"}) {
    EXPECT_TRUE(fails_with(store.get(name, out), ErrorCode::not_found, name));
    EXPECT_TRUE(fails_with(store.get(name, {}), ErrorCode::not_found, name));
    EXPECT_TRUE(fails_with(store.stat(name), ErrorCode::not_found, name));
    EXPECT_TRUE(fails_with(store.remove(name), ErrorCode::not_found, name));
    EXPECT_TRUE(fails_with(get_object(store, name, 10), ErrorCode::not_found, name));
  }
  EXPECT_EQ(names_of(store), std::vector<std::string>{"a/b"});
}

TEST_P(StoreConformance, RemoveRemovesOne) {
  Store& store = open();
  ASSERT_TRUE(succeeds(store.put("a", to_bytes("1"))));
  ASSERT_TRUE(succeeds(store.put("b", to_bytes("2"))));
  ASSERT_TRUE(succeeds(store.remove("a")));
  EXPECT_TRUE(fails_with(store.stat("a"), ErrorCode::not_found));
  EXPECT_TRUE(fails_with(store.remove("a"), ErrorCode::not_found));
  EXPECT_EQ(names_of(store), std::vector<std::string>{"b"});
  ASSERT_TRUE(succeeds(store.put("a", to_bytes("3"))));
  EXPECT_EQ(*get_object(store, "a", kNoLimit), to_bytes("3"));
}

TEST_P(StoreConformance, ListSortsAndFilters) {
  Store& store = open();
  EXPECT_TRUE(names_of(store).empty());
  const std::vector<std::string> names = {"a",   "a-b", "a.b", "a/b", "a/b/c",
                                          "a_b", "ab",  "b",   "b/0", "z/z/z"};
  for (size_t i = names.size(); i-- > 0;) {
    ASSERT_TRUE(succeeds(store.put(names[i], std::vector<std::byte>(i))));
  }
  EXPECT_EQ(names_of(store), names);
  EXPECT_EQ(names_of(store, "a/"), (std::vector<std::string>{"a/b", "a/b/c"}));
  EXPECT_EQ(names_of(store, "a/b"), (std::vector<std::string>{"a/b", "a/b/c"}));
  EXPECT_EQ(names_of(store, "z"), std::vector<std::string>{"z/z/z"});
  EXPECT_TRUE(names_of(store, "c").empty());
  EXPECT_TRUE(names_of(store, "a+b").empty());
  EXPECT_TRUE(names_of(store, "../").empty());
  const auto objects = store.list();
  ASSERT_TRUE(succeeds(objects));
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ((*objects)[i].bytes, i) << names[i];
}

TEST_P(StoreConformance, AcceptsEveryAllowedName) {
  Store& store = open();
  std::vector<std::string> names = {"0",
                                    "...",
                                    ".a",
                                    "a.",
                                    "-",
                                    "--help",
                                    "_",
                                    "..a/b..",
                                    ".../...",
                                    "tmp",
                                    "tmp/x",
                                    "objects/00/a",
                                    "kvcodec-store",
                                    "kvcodec-lock",
                                    "abcdefghijklmnopqrstuvwxyz0123456789._-",
                                    std::string(255, 'n'),
                                    std::string(253, 'n') + "/n",
                                    "n/" + std::string(253, 'n')};
  std::string deep = "d";
  while (deep.size() < 255) deep += "/d";
  names.push_back(deep);
  for (const auto& name : names) {
    ASSERT_TRUE(succeeds(store.put(name, to_bytes(name)))) << name;
  }
  for (const auto& name : names) {
    EXPECT_EQ(*get_object(store, name, kNoLimit), to_bytes(name));
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names_of(store), names);
}

TEST_P(StoreConformance, RefusesEveryOtherName) {
  Store& store = open();
  std::vector<std::string> names = {"",
                                    "/",
                                    "//",
                                    "/a",
                                    "a/",
                                    "a//b",
                                    ".",
                                    "..",
                                    "./a",
                                    "a/.",
                                    "a/./b",
                                    "../a",
                                    "a/..",
                                    "a/../b",
                                    "a/../..",
                                    "/etc/passwd",
                                    "../../../etc/passwd",
                                    "A",
                                    "a b",
                                    "a+b",
                                    "a\\b",
                                    "a:b",
                                    "a%2e",
                                    "\xc3\xa9",
                                    "a\n",
                                    std::string(256, 'a')};
  for (int c = 0; c < 256; ++c) {
    const bool allowed = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
                         c == '/' || c == '-';
    if (!allowed) names.push_back(std::string("a") + static_cast<char>(c) + "b");
  }
  std::array<std::byte, 4> out;
  for (const auto& name : names) {
    EXPECT_TRUE(fails_with(store.put(name, to_bytes("x")), ErrorCode::invalid_argument)) << name;
    EXPECT_TRUE(fails_with(store.get(name, out), ErrorCode::invalid_argument)) << name;
    EXPECT_TRUE(fails_with(store.stat(name), ErrorCode::invalid_argument)) << name;
    EXPECT_TRUE(fails_with(store.remove(name), ErrorCode::invalid_argument)) << name;
  }
  EXPECT_TRUE(names_of(store).empty());
}

TEST_P(StoreConformance, GetObjectIsBounded) {
  Store& store = open();
  ASSERT_TRUE(succeeds(store.put("a", std::vector<std::byte>(1000))));
  EXPECT_TRUE(succeeds(get_object(store, "a", 1000)));
  EXPECT_TRUE(fails_with(get_object(store, "a", 999), ErrorCode::corrupt, "'a' has 1000 bytes"));
  EXPECT_TRUE(fails_with(get_object(store, "a", 0), ErrorCode::corrupt));
  ASSERT_TRUE(succeeds(store.put("empty", {})));
  EXPECT_TRUE(succeeds(get_object(store, "empty", 0)));
}

TEST_P(StoreConformance, PutAndGetAreUsesAndStatIsNot) {
  Store& store = open();
  const auto before = std::chrono::system_clock::now();
  ASSERT_TRUE(succeeds(store.put("a", to_bytes("1"))));
  ASSERT_TRUE(succeeds(store.put("b", to_bytes("2"))));
  const auto put_a = store.stat("a")->last_used, put_b = store.stat("b")->last_used;
  // The file system may keep fewer digits of the time than the clock has.
  EXPECT_GE(put_a, before - std::chrono::seconds(2));
  EXPECT_LE(put_a, put_b);
  EXPECT_EQ(store.stat("a")->last_used, put_a);
  std::array<std::byte, 1> out;
  ASSERT_TRUE(succeeds(store.get("a", out)));
  if (GetParam().bounded) {
    EXPECT_GT(store.stat("a")->last_used, put_b);
  }
  EXPECT_EQ(store.stat("b")->last_used, put_b);
  const auto objects = store.list();
  ASSERT_TRUE(succeeds(objects));
  EXPECT_EQ((*objects)[0].last_used, store.stat("a")->last_used);
}

}  // namespace
}  // namespace kvcodec
