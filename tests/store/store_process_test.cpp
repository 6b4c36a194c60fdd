// SPDX-License-Identifier: Apache-2.0
// FileStore shared by several processes, and on a disk that is full.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <random>

#include "child_process.h"
#include "sealed_bytes.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

constexpr int kProcesses = 4;
constexpr int kSkipped = 77;
constexpr size_t kMaxSize = 30000;
constexpr uint64_t kBound = 100000;

class StoreProcesses : public testing::Test {
 protected:
  std::unique_ptr<FileStore> open(uint64_t max_bytes = 0) const {
    auto store = FileStore::open(dir / "store", {.max_bytes = max_bytes});
    if (!store.ok()) throw std::runtime_error(store.error().message);
    return *std::move(store);
  }
  // The sum of the objects and the sum that the store keeps, at one moment.
  void expect_exact_sum(uint64_t bound) const {
    auto root = StoreRoot::open(dir / "store");
    ASSERT_TRUE(succeeds(root));
    auto store = open();
    auto ledger = UsageLedger::lock(*root);
    ASSERT_TRUE(succeeds(ledger));
    uint64_t total = 0;
    const auto objects = store->list("");
    ASSERT_TRUE(succeeds(objects));
    for (const auto& object : *objects) total += object.bytes;
    EXPECT_LE(total, bound);
    if (ledger->total()) {
      EXPECT_EQ(*ledger->total(), total);
    }
  }

  const TempDir dir;
};

bool whole_or_absent(Store& store, const std::string& name) {
  const auto bytes = get_object(store, name, kMaxSize);
  if (bytes.ok()) return sealed_version(name, *bytes).has_value();
  if (bytes.error().code == ErrorCode::not_found) return true;
  std::fprintf(stderr, "%s\n", bytes.error().message.c_str());
  return false;
}

// Puts, gets and removes at random; 0 where every answer was right.
int work(Store& store, unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < 80; ++i) {
    const std::string name = fmt::format("shared/{}", random() % 12);
    if (random() % 4 == 0) {
      const Status removed = store.remove(name);
      if (!removed.ok() && removed.error().code != ErrorCode::not_found) return 1;
    } else {
      const auto bytes = make_sealed(name, seed, random() % kMaxSize);
      const Status put = store.put(name, bytes);
      if (!put.ok()) std::fprintf(stderr, "%s\n", put.error().message.c_str());
      if (!put.ok()) return 2;
    }
    for (int j = 0; j < 3; ++j) {
      if (!whole_or_absent(store, fmt::format("shared/{}", random() % 12))) return 3;
    }
    if (i % 20 == 0 && !store.list().ok()) return 4;
  }
  return 0;
}

TEST_F(StoreProcesses, WriteAndReadTheSameNamesAtOnce) {
  for (const uint64_t bound : {uint64_t{0}, kBound}) {
    std::vector<ChildProcess> children;
    for (int i = 0; i < kProcesses; ++i) {
      // Each opens (and the first ones create) the store for itself.
      children.emplace_back([&, i] { return work(*open(bound), static_cast<unsigned>(i)); });
    }
    for (int i = 0; i < 20; ++i) {
      ::usleep(5000);
      expect_exact_sum(bound ? kBound : UINT64_MAX);
    }
    for (auto& child : children) EXPECT_EQ(child.wait(), 0);
    expect_exact_sum(bound ? kBound : UINT64_MAX);
    auto store = open();
    EXPECT_FALSE(names_of(*store).empty());
    for (const auto& name : names_of(*store)) EXPECT_TRUE(whole_or_absent(*store, name));
    EXPECT_EQ(count_entries(dir / "store/tmp"), 0u);
    ASSERT_TRUE(succeeds(collect_garbage(*store, 0)));
  }
}

// One FileStore used on both sides of a fork: the sides must still exclude each other.
TEST_F(StoreProcesses, AStoreOpenedBeforeForkWorksAfterIt) {
  const auto store = open(kBound);
  std::vector<ChildProcess> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.emplace_back([&, i] { return work(*store, static_cast<unsigned>(10 + i)); });
  }
  EXPECT_EQ(work(*store, 20), 0);
  for (auto& child : children) EXPECT_EQ(child.wait(), 0);
  expect_exact_sum(kBound);
}

TEST_F(StoreProcesses, CreateOneStoreTogether) {
  for (int round = 0; round < 5; ++round) {
    std::vector<ChildProcess> children;
    for (int i = 0; i < kProcesses; ++i) {
      children.emplace_back([&, i] {
        const std::string name = fmt::format("from/{}", i);
        return open()->put(name, make_sealed(name, 1, 100)).ok() ? 0 : 1;
      });
    }
    for (auto& child : children) EXPECT_EQ(child.wait(), 0);
    EXPECT_EQ(names_of(*open()).size(), size_t{kProcesses});
    std::filesystem::remove_all(dir / "store");
  }
}

TEST_F(StoreProcesses, EvictionIsLruAcrossProcesses) {
  const auto first = open(300);
  const auto put = [&](Store& store, const char* name) {
    ASSERT_TRUE(succeeds(store.put(name, std::vector<std::byte>(100))));
  };
  put(*first, "a");
  put(*first, "b");
  put(*first, "c");
  put(*first, "d");  // evicts a, and remembers b and c as the next
  ChildProcess other([&] {
    const auto store = open(300);
    return store->put("b", std::vector<std::byte>(100)).ok() ? 0 : 1;
  });
  ASSERT_EQ(other.wait(), 0);
  put(*first, "e");
  EXPECT_EQ(names_of(*first), (std::vector<std::string>{"b", "d", "e"}));
}

// Fills a disk until a put fails; then nothing may be broken. 0 where all is well.
int fill_disk(const std::string& path, const std::string& errno_text) {
  auto opened = FileStore::open(path);
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.error().message.c_str());
    return 1;
  }
  Store& store = **opened;
  int stored = 0;
  for (; stored < 1000; ++stored) {
    const std::string name = fmt::format("n{}", stored);
    const Status put = store.put(name, make_sealed(name, 1, 100'000 * (1 + stored % 4)));
    if (put.ok()) continue;
    const std::string& message = put.error().message;
    if (put.error().code == ErrorCode::io && message.find(errno_text) != std::string::npos &&
        message.find(path + "/tmp/") != std::string::npos) {
      break;
    }
    std::fprintf(stderr, "%s\n", message.c_str());
    return 2;
  }
  if (stored == 0 || stored == 1000) return 5;
  if (count_entries(path + "/tmp") != 0) return 6;
  const auto objects = store.list();
  if (!objects.ok() || objects->size() != static_cast<size_t>(stored)) return 7;
  for (const auto& object : *objects) {
    const auto bytes = get_object(store, object.name, 1 << 20);
    if (!bytes.ok() || !sealed_version(object.name, *bytes)) return 8;
  }
  // Room again: the store goes on.
  if (!store.remove("n0").ok() || !store.put("n0", make_sealed("n0", 2, 100)).ok()) return 9;
  return 0;
}

TEST_F(StoreProcesses, ReportAFullDisk) {
  const std::string mount_point = dir / "disk";
  std::filesystem::create_directory(mount_point);
  ChildProcess child([&] {
    // A file system of our own, seen by nobody else and gone with the process.
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return kSkipped;
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kSkipped;
    if (::mount("none", mount_point.c_str(), "tmpfs", 0, "size=4m") != 0) return kSkipped;
    return fill_disk(mount_point + "/store", "No space left on device");
  });
  const int code = child.wait();
  if (code == kSkipped) GTEST_SKIP() << "this user may not mount a file system";
  EXPECT_EQ(code, 0);
}

// The same through a limit that every user may set: the last write is short, the next one fails.
TEST_F(StoreProcesses, ReportAFileThatMayNotGrow) {
  ChildProcess child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{350'000, 350'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 50;
    return fill_disk(dir / "store", "File too large");
  });
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace kvcodec
