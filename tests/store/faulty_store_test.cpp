// SPDX-License-Identifier: Apache-2.0
// FaultyStore itself, and what is built on Store under its faults.
#include "faulty_store.h"

#include <array>

#include "sealed_bytes.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

class FaultyStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(succeeds(below.put("a", whole)));
    ASSERT_TRUE(succeeds(below.put("b", make_sealed("b", 1, 50))));
  }
  MemoryStore below;
  FaultyStore store{below};
  const std::vector<std::byte> whole = make_sealed("a", 1, 1000);
};

TEST_F(FaultyStoreTest, FailsTheCallsItIsToldTo) {
  store.set_plan(fail_calls(StoreOp::get, ErrorCode::unavailable, 1, 2));
  EXPECT_TRUE(succeeds(get_object(store, "a", 1000)));
  EXPECT_TRUE(fails_with(get_object(store, "a", 1000), ErrorCode::unavailable, "call 1 for 'a'"));
  EXPECT_TRUE(fails_with(get_object(store, "a", 1000), ErrorCode::unavailable, "call 2 for 'a'"));
  EXPECT_TRUE(succeeds(get_object(store, "a", 1000)));
  EXPECT_EQ(store.calls(StoreOp::get), 4u);
  EXPECT_EQ(store.calls(StoreOp::put), 0u);
}

TEST_F(FaultyStoreTest, LosesAcknowledgements) {
  store.set_plan([](const StoreCall&) {
    Fault fault;
    fault.error = Error{ErrorCode::unavailable, "lost"};
    fault.error_after = true;
    return fault;
  });
  EXPECT_TRUE(fails_with(store.put("c", to_bytes("x")), ErrorCode::unavailable));
  EXPECT_TRUE(succeeds(below.stat("c")));
  EXPECT_TRUE(fails_with(store.remove("c"), ErrorCode::unavailable));
  EXPECT_TRUE(fails_with(below.stat("c"), ErrorCode::not_found));
}

TEST_F(FaultyStoreTest, GetObjectNeverReturnsAShortRead) {
  for (const size_t limit : {0u, 1u, 999u}) {
    store.set_plan(short_reads(limit));
    EXPECT_TRUE(fails_with(get_object(store, "a", 1000), ErrorCode::unavailable,
                           fmt::format("read {} bytes where 1000", limit)));
  }
  store.set_plan(short_reads(10, "b"));
  EXPECT_TRUE(succeeds(get_object(store, "a", 1000)));
  EXPECT_TRUE(fails_with(get_object(store, "b", 1000), ErrorCode::unavailable));
}

TEST_F(FaultyStoreTest, GetObjectOutlivesPassingShortReads) {
  store.set_plan([](const StoreCall& call) {
    Fault fault;
    if (call.op == StoreOp::get && call.index < 3) fault.max_read = 7;
    return fault;
  });
  const auto bytes = get_object(store, "a", 1000);
  ASSERT_TRUE(succeeds(bytes));
  EXPECT_EQ(*bytes, whole);
}

// The object is replaced between get_object's stat and its get, by a longer and a shorter one.
TEST_F(FaultyStoreTest, GetObjectSeesOneVersionOfAnObjectThatChanges) {
  for (const size_t other_size : {2000u, 100u}) {
    ASSERT_TRUE(succeeds(below.put("a", whole)));
    const auto other = make_sealed("a", 2, other_size);
    const uint64_t gets = store.calls(StoreOp::get);
    store.set_plan([&](const StoreCall& call) {
      if (call.op == StoreOp::get && call.index == gets) {
        EXPECT_TRUE(below.put("a", other).ok());
      }
      return Fault{};
    });
    const auto bytes = get_object(store, "a", 5000);
    ASSERT_TRUE(succeeds(bytes));
    EXPECT_EQ(*bytes, other);
    EXPECT_EQ(store.calls(StoreOp::get), gets + 2);
  }
}

TEST_F(FaultyStoreTest, GetObjectReportsAnObjectThatVanishes) {
  store.set_plan([&](const StoreCall& call) {
    if (call.op == StoreOp::get) {
      EXPECT_TRUE(below.remove("a").ok());
    }
    return Fault{};
  });
  EXPECT_TRUE(fails_with(get_object(store, "a", 5000), ErrorCode::not_found));
}

TEST_F(FaultyStoreTest, TruncatesAndFlipsWhereTold) {
  store.set_plan(truncate_object("a", 600));
  auto bytes = get_object(store, "a", 1000);
  ASSERT_TRUE(succeeds(bytes));
  EXPECT_TRUE(std::equal(bytes->begin(), bytes->end(), whole.begin(), whole.begin() + 600));
  std::array<std::byte, 100> out;
  EXPECT_EQ(*store.get("a", out, 550), 50u);
  EXPECT_EQ(*store.get("a", out, 700), 0u);
  EXPECT_FALSE(sealed_version("a", *bytes));

  store.set_plan(flip_bits("a", 555, std::byte{0x10}));
  bytes = get_object(store, "a", 1000);
  ASSERT_TRUE(succeeds(bytes));
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ((*bytes)[i], whole[i] ^ std::byte(i == 555 ? 0x10 : 0)) << i;
  }
  ASSERT_EQ(*store.get("a", out, 500), 100u);
  EXPECT_EQ(out[55], whole[555] ^ std::byte{0x10});
  EXPECT_TRUE(sealed_version("b", *get_object(store, "b", 1000)));
}

TEST_F(FaultyStoreTest, DamagesWhatIsPut) {
  store.set_plan([](const StoreCall& call) {
    Fault fault;
    if (call.op == StoreOp::put) {
      fault.truncate_at = 900;
      fault.flip = {3, std::byte{1}};
    }
    return fault;
  });
  ASSERT_TRUE(succeeds(store.put("c", whole)));
  const auto kept = get_object(below, "c", 1000);
  ASSERT_TRUE(succeeds(kept));
  EXPECT_EQ(kept->size(), 900u);
  EXPECT_EQ((*kept)[3], whole[3] ^ std::byte{1});
}

TEST_F(FaultyStoreTest, CollectGarbageReportsFaultsAndRemovesNothingWrongly) {
  for (const StoreOp op : {StoreOp::list, StoreOp::stat, StoreOp::remove}) {
    store.set_plan(fail_calls(op, ErrorCode::io));
    EXPECT_TRUE(fails_with(collect_garbage(store, 100), ErrorCode::io, "injected"));
  }
  EXPECT_EQ(names_of(below), (std::vector<std::string>{"a", "b"}));
}

// "a" is the oldest when the objects are listed, and used before its turn comes.
TEST_F(FaultyStoreTest, CollectGarbageSparesWhatIsUsedMeanwhile) {
  store.set_plan([&](const StoreCall& call) {
    std::array<std::byte, 1> out;
    if (call.op == StoreOp::stat && call.index == 0) {
      EXPECT_TRUE(below.get("a", out, 0).ok());
    }
    return Fault{};
  });
  const auto report = collect_garbage(store, 1000);
  ASSERT_TRUE(succeeds(report));
  EXPECT_EQ(report->bytes_before, 1050u);
  EXPECT_EQ(report->objects_removed, 1u);
  EXPECT_EQ(names_of(below), std::vector<std::string>{"a"});
}

TEST_F(FaultyStoreTest, CollectGarbageEndsBesideABusyReader) {
  store.set_plan([&](const StoreCall& call) {
    std::array<std::byte, 1> out;
    if (call.op == StoreOp::stat) {
      EXPECT_TRUE(below.get(call.name, out, 0).ok());
    }
    return Fault{};
  });
  const auto report = collect_garbage(store, 0);
  ASSERT_TRUE(succeeds(report));
  EXPECT_EQ(report->objects_removed, 2u);
  EXPECT_TRUE(names_of(below).empty());
}

TEST_F(FaultyStoreTest, CollectGarbageCountsWhatOthersRemoved) {
  store.set_plan([&](const StoreCall& call) {
    if (call.op == StoreOp::remove) {
      EXPECT_TRUE(below.remove(call.name).ok());
    }
    return Fault{};
  });
  const auto report = collect_garbage(store, 50);
  ASSERT_TRUE(succeeds(report));
  EXPECT_EQ(report->objects_removed, 0u);
  EXPECT_EQ(names_of(below), std::vector<std::string>{"b"});
}

}  // namespace
}  // namespace kvcodec
