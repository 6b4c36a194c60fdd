// SPDX-License-Identifier: Apache-2.0
// What is special to TieredStore: promotion, levels that are down, and writing back.
#include "store/tiered_store.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <latch>
#include <map>
#include <random>
#include <thread>

#include "sealed_bytes.h"
#include "store/sealed_store.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

using std::chrono::milliseconds;

// Two levels in memory that fail as told.
class TieredStoreTest : public testing::Test {
 protected:
  void open(const TieredOptions& options = {}) {
    std::vector<std::unique_ptr<Store>> levels;
    auto upper = std::make_unique<FaultyStore>(upper_memory),
         lower = std::make_unique<FaultyStore>(lower_memory);
    above = upper.get();
    below = lower.get();
    levels.push_back(std::move(upper));
    levels.push_back(std::move(lower));
    store = *make_tiered_store(std::move(levels), options);
  }
  void SetUp() override { open(); }
  std::string text_of(const Result<std::vector<std::byte>>& bytes) {
    if (!bytes.ok()) return error_code_name(bytes.error().code);
    return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
  }
  std::string text(const std::string& name) { return text_of(get_object(*store, name, 1 << 20)); }
  static FaultPlan everything_fails() {
    return [](const StoreCall&) {
      Fault fault;
      fault.error = make_error(ErrorCode::unavailable, "down");
      return fault;
    };
  }

  MemoryStore upper_memory, lower_memory;
  FaultyStore *above = nullptr, *below = nullptr;
  std::unique_ptr<Store> store;
};

TEST_F(TieredStoreTest, PromotesWhatItFindsBelow) {
  ASSERT_TRUE(succeeds(lower_memory.put("a", to_bytes("0123456789"))));
  std::array<std::byte, 4> out;
  EXPECT_EQ(*store->get("a", out, 3), 4u);
  EXPECT_EQ(out[0], std::byte{'3'});
  EXPECT_EQ(text_of(get_object(upper_memory, "a", 100)), "0123456789") << "whole";
  const uint64_t asked = below->calls(StoreOp::get);
  EXPECT_EQ(*store->get("a", out, 8), 2u);
  EXPECT_EQ(text("a"), "0123456789");
  EXPECT_EQ(below->calls(StoreOp::get), asked);
}

TEST_F(TieredStoreTest, PromotesNothingThatIsTooLargeOrUnwanted) {
  ASSERT_TRUE(succeeds(lower_memory.put("a", to_bytes("0123456789"))));
  for (const uint64_t most : {uint64_t{0}, uint64_t{9}}) {
    open({.promote_max_bytes = most});
    for (const size_t room : {size_t{4}, size_t{10}, size_t{11}}) {
      std::vector<std::byte> out(room);
      EXPECT_EQ(*store->get("a", out, 0), std::min<size_t>(room, 10));
      EXPECT_EQ(*store->get("a", out, 1), std::min<size_t>(room, 9));
    }
    EXPECT_TRUE(names_of(upper_memory).empty());
  }
}

TEST_F(TieredStoreTest, OneReadsForMany) {
  ASSERT_TRUE(succeeds(lower_memory.put("a", std::vector<std::byte>(100000, std::byte{7}))));
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        std::vector<std::byte> out(1000);
        const auto n = store->get("a", out, static_cast<uint64_t>(t) * 1000);
        if (!n.ok() || *n != 1000 || out[999] != std::byte{7}) ++wrong;
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  // All of it once, and the range of whoever asked for the beginning and might have had it all.
  EXPECT_LE(below->calls(StoreOp::get), 2u);
}

TEST_F(TieredStoreTest, PassesOverALevelThatIsDown) {
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("x"))));
  above->set_plan(everything_fails());
  EXPECT_EQ(text("a"), "x");
  EXPECT_TRUE(succeeds(store->stat("a")));
  EXPECT_TRUE(fails_with(store->stat("b"), ErrorCode::unavailable, "level 0")) << "it may be there";
  EXPECT_TRUE(fails_with(store->list(), ErrorCode::unavailable, "level 0"));
  above->set_plan({});
  below->set_plan(everything_fails());
  EXPECT_EQ(text("a"), "x");
  EXPECT_TRUE(fails_with(store->stat("b"), ErrorCode::unavailable, "level 1"));
  EXPECT_TRUE(fails_with(store->put("a", to_bytes("y")), ErrorCode::unavailable, "level 1"));
  EXPECT_EQ(text("a"), "x") << "what failed has changed nothing";
  EXPECT_TRUE(fails_with(store->remove("a"), ErrorCode::unavailable, "level 1"));
  below->set_plan({});
  EXPECT_TRUE(fails_with(store->stat("b"), ErrorCode::not_found));
}

// A level that could not take the new version must not answer with the old one.
TEST_F(TieredStoreTest, NeverAnswersWithWhatWasReplaced) {
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("old"))));
  above->set_plan(fail_calls(StoreOp::put, ErrorCode::io));
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("new"))));
  EXPECT_TRUE(fails_with(upper_memory.stat("a"), ErrorCode::not_found)) << "it was removed";
  EXPECT_EQ(text("a"), "new");

  above->set_plan({});
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("old"))));
  above->set_plan(everything_fails());
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("new"))));
  above->set_plan({});
  EXPECT_EQ(text_of(get_object(upper_memory, "a", 10)), "old") << "it could not even be removed";
  EXPECT_EQ(text("a"), "new");
  EXPECT_EQ(store->stat("a")->bytes, 3u);
  EXPECT_EQ(text_of(get_object(upper_memory, "a", 10)), "new") << "mended by promotion";
}

TEST_F(TieredStoreTest, RemovesFromAllLevels) {
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("x"))));
  ASSERT_TRUE(succeeds(upper_memory.put("b", to_bytes("x"))));
  ASSERT_TRUE(succeeds(lower_memory.put("c", to_bytes("x"))));
  EXPECT_EQ(names_of(*store), (std::vector<std::string>{"a", "b", "c"}));
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_TRUE(succeeds(store->remove(name)));
    EXPECT_TRUE(fails_with(store->remove(name), ErrorCode::not_found));
  }
  EXPECT_TRUE(names_of(upper_memory).empty());
  EXPECT_TRUE(names_of(lower_memory).empty());
  // Where one level fails the object is still found, not half gone.
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("x"))));
  above->set_plan(fail_calls(StoreOp::remove, ErrorCode::io));
  EXPECT_TRUE(fails_with(store->remove("a"), ErrorCode::io, "level 0"));
  EXPECT_EQ(text("a"), "x");
}

// The object is removed between being read below and being put above.
TEST_F(TieredStoreTest, PromotionBringsNothingBack) {
  ASSERT_TRUE(succeeds(lower_memory.put("a", to_bytes("0123456789"))));
  std::array<std::byte, 10> out;
  below->set_plan([&](const StoreCall& call) {
    if (call.op == StoreOp::stat && call.index == 0) {
      std::jthread([&] { EXPECT_TRUE(succeeds(store->remove("a"))); }).join();
    }
    return Fault{};
  });
  (void)store->get("a", out, 0);
  EXPECT_TRUE(fails_with(store->stat("a"), ErrorCode::not_found));
  EXPECT_TRUE(names_of(upper_memory).empty());
}

TEST_F(TieredStoreTest, ADamagedLevelIsPassedOverAndMended) {
  const auto keys = *parse_keys(std::string(64, '5'), "test");
  std::vector<std::unique_ptr<Store>> levels;
  auto damaged = std::make_unique<FaultyStore>(upper_memory);
  FaultyStore* faults = damaged.get();
  levels.push_back(std::make_unique<SealedStore>(std::move(damaged), keys));
  levels.push_back(std::make_unique<FaultyStore>(lower_memory));
  const auto sealed = *make_tiered_store(std::move(levels));
  ASSERT_TRUE(succeeds(sealed->put("a", to_bytes("good"))));
  faults->set_plan(flip_bits("a", 70, std::byte{1}));
  std::array<std::byte, 10> out;
  EXPECT_EQ(*sealed->get("a", out, 0), 4u);
  EXPECT_EQ(out[0], std::byte{'g'});
}

TEST_F(TieredStoreTest, WritesBack) {
  open({.write_back = true});
  std::latch go(1);
  below->set_plan([&](const StoreCall& call) {
    if (call.op == StoreOp::put) go.wait();
    return Fault{};
  });
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("1"))));
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("2"))));
  ASSERT_TRUE(succeeds(store->put("b", to_bytes("3"))));
  ASSERT_TRUE(succeeds(store->put("c", to_bytes("4"))));
  EXPECT_TRUE(names_of(lower_memory).empty());
  EXPECT_TRUE(fails_with(store->flush(milliseconds(10)), ErrorCode::unavailable, "3 objects"));
  // Losing the level above loses nothing that waits.
  for (const auto& name : names_of(upper_memory)) ASSERT_TRUE(succeeds(upper_memory.remove(name)));
  EXPECT_EQ(text("a"), "2");
  EXPECT_EQ(store->stat("b")->bytes, 1u);
  EXPECT_EQ(names_of(*store), (std::vector<std::string>{"a", "b", "c"}));
  go.count_down();
  ASSERT_TRUE(succeeds(store->flush(milliseconds(60000))));
  EXPECT_EQ(text_of(get_object(lower_memory, "a", 10)), "2");
  EXPECT_EQ(text_of(get_object(lower_memory, "b", 10)), "3");
}

TEST_F(TieredStoreTest, WritesBackAgainAfterFailures) {
  open({.write_back = true});
  below->set_plan(fail_calls(StoreOp::put, ErrorCode::unavailable, 0, 3));
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("1"))));
  ASSERT_TRUE(succeeds(store->put("b", to_bytes("2"))));
  ASSERT_TRUE(succeeds(store->flush(milliseconds(60000))));
  EXPECT_EQ(names_of(lower_memory), (std::vector<std::string>{"a", "b"}));
}

TEST_F(TieredStoreTest, FlushSaysWhatIsMissing) {
  open({.write_back = true, .flush_timeout = milliseconds(1)});
  below->set_plan(fail_calls(StoreOp::put, ErrorCode::io));
  ASSERT_TRUE(succeeds(store->put("a", std::vector<std::byte>(100))));
  while (below->calls(StoreOp::put) == 0) std::this_thread::yield();
  Status flushed = store->flush(milliseconds(1));
  for (int i = 0; i < 1000 && flushed.error().message.find("injected") == std::string::npos; ++i) {
    flushed = store->flush(milliseconds(5));
  }
  EXPECT_TRUE(fails_with(flushed, ErrorCode::unavailable, "1 objects, 100 bytes"));
  EXPECT_TRUE(fails_with(flushed, ErrorCode::unavailable, "injected"));
}

TEST_F(TieredStoreTest, RemovingCancelsWhatWaits) {
  open({.write_back = true});
  std::latch go(1);
  below->set_plan([&](const StoreCall& call) {
    if (call.op == StoreOp::put) go.wait();
    return Fault{};
  });
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("1"))));
  std::jthread remover([&] { EXPECT_TRUE(succeeds(store->remove("a"))); });
  std::this_thread::sleep_for(milliseconds(5));
  go.count_down();
  remover.join();
  ASSERT_TRUE(succeeds(store->flush(milliseconds(60000))));
  EXPECT_TRUE(fails_with(store->stat("a"), ErrorCode::not_found));
  EXPECT_TRUE(names_of(lower_memory).empty());
}

TEST_F(TieredStoreTest, TheQueueIsBounded) {
  open({.write_back = true, .queue_bytes = 1000});
  std::latch go(1);
  below->set_plan([&](const StoreCall& call) {
    if (call.op == StoreOp::put) go.wait();
    return Fault{};
  });
  std::atomic<int> puts{0};
  std::jthread writer([&] {
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(succeeds(store->put(fmt::format("n{}", i), std::vector<std::byte>(400))));
      ++puts;
    }
    // Larger than the queue: it goes when there is nothing else.
    EXPECT_TRUE(succeeds(store->put("large", std::vector<std::byte>(5000))));
  });
  while (puts < 2) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(puts, 2) << "the third waits";
  go.count_down();
  writer.join();
  ASSERT_TRUE(succeeds(store->flush(milliseconds(60000))));
  EXPECT_EQ(names_of(lower_memory).size(), 11u);
}

TEST_F(TieredStoreTest, DestructionWritesBack) {
  open({.write_back = true});
  below->set_plan(fail_calls(StoreOp::put, ErrorCode::unavailable, 0, 2));
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("1"))));
  store.reset();
  EXPECT_EQ(names_of(lower_memory), std::vector<std::string>{"a"});
}

// Random calls while levels fail at random: what is read is always what was put last.
TEST_F(TieredStoreTest, NeverWrongUnderRandomFaults) {
  for (const bool write_back : {false, true}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      for (MemoryStore* memory : {&upper_memory, &lower_memory}) {
        for (const auto& name : names_of(*memory)) ASSERT_TRUE(succeeds(memory->remove(name)));
      }
      open({.write_back = write_back});
      const auto random_faults = [](unsigned faults_seed, bool also_puts) {
        auto random = std::make_shared<std::mt19937>(faults_seed);
        auto mutex = std::make_shared<std::mutex>();
        return [=](const StoreCall& call) {
          const std::lock_guard guard(*mutex);
          Fault fault;
          if ((*random)() % 4 == 0 && (also_puts || call.op != StoreOp::put)) {
            fault.error = make_error(ErrorCode::unavailable, "injected");
            fault.error_after = (*random)() % 2 == 0;
          }
          return fault;
        };
      };
      above->set_plan(random_faults(seed, true));
      below->set_plan(random_faults(seed + 1000, write_back));
      std::mt19937 random(seed);
      std::map<std::string, std::string> model;  // "" where it was removed
      for (int i = 0; i < 300; ++i) {
        const std::string name = fmt::format("n{}", random() % 4);
        const auto what = random() % 10;
        if (what < 3) {
          const std::string value = fmt::format("value {}", i);
          ASSERT_TRUE(succeeds(store->put(name, to_bytes(value))));
          model[name] = value;
        } else if (what == 3) {
          const Status removed = store->remove(name);
          // Where it failed it may be gone or not; make it known again.
          if (!removed.ok() && removed.error().code != ErrorCode::not_found) {
            ASSERT_TRUE(succeeds(store->put(name, to_bytes("again"))));
            model[name] = "again";
          } else {
            model.erase(name);
          }
        } else {
          std::array<std::byte, 32> out;
          const auto n = store->get(name, out);
          if (n.ok()) {
            const std::string found(reinterpret_cast<const char*>(out.data()), *n);
            ASSERT_EQ(found, model.contains(name) ? model[name] : "(none)") << seed << " " << i;
          } else if (n.error().code == ErrorCode::not_found) {
            ASSERT_FALSE(model.contains(name)) << seed << " " << i;
          }
        }
      }
      above->set_plan({});
      below->set_plan({});
      ASSERT_TRUE(succeeds(store->flush(milliseconds(60000))));
      for (const auto& [name, value] : model) {
        EXPECT_EQ(text(name), value);
        EXPECT_EQ(text_of(get_object(lower_memory, name, 100)), value);
      }
    }
  }
}

TEST(TieredUri, OpensLevels) {
  const TempDir dir;
  const std::string uri = "tiered:?level=mem:?max_bytes=1K&level=file://" + (dir / "a%2526b");
  {
    const auto store = open_store(uri + "&write=back&queue_bytes=10K&promote_max_bytes=2K");
    ASSERT_TRUE(succeeds(store));
    ASSERT_TRUE(succeeds((*store)->put("a", to_bytes("x"))));
    ASSERT_TRUE(succeeds((*store)->put("large", std::vector<std::byte>(5000))));
  }
  EXPECT_TRUE(std::filesystem::is_directory(dir / "a&b"));
  const auto store = open_store(uri);
  ASSERT_TRUE(succeeds(store));
  EXPECT_EQ(names_of(**store), (std::vector<std::string>{"a", "large"}));
  for (const char* bad :
       {"tiered:", "tiered:?level=mem:", "tiered:x?level=mem:&level=mem:", "tiered://h",
        "tiered:?level=mem:&level=mem:&write=never", "tiered:?level=mem:&level=x",
        "tiered:?level=mem:&level=mem:&unknown=1", "tiered:?level=mem:&level=mem:?a=b"}) {
    EXPECT_TRUE(fails_with(open_store(bad), ErrorCode::invalid_argument)) << bad;
  }
  EXPECT_TRUE(fails_with(open_store(uri, {.max_bytes = 1}), ErrorCode::unsupported, "level"));
}

}  // namespace
}  // namespace kvcodec
