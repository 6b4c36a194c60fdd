// SPDX-License-Identifier: Apache-2.0
// FileStore against an operating system that misbehaves: this program has its own write, fsync,
// renameat and flock, which come before libc's. They record what is done and fail when told to.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <functional>

#include "sealed_bytes.h"
#include "store_kinds.h"

namespace {

struct FakeSystem {
  std::vector<std::string> log = {};
  size_t max_write = SIZE_MAX;
  int interrupts = 0;            // so many of the next calls fail with EINTR
  std::string failing = {};      // calls of this name fail...
  int err = 0;                   // ...with this
  int calls_before = 0;          // ...after so many that do not...
  int failures = INT_MAX;        // ...and so many times
  bool steal_temporary = false;  // the next file to be locked is removed just before
  std::function<void()> before_store_lock = {};  // called once
  bool on = false;

  // Whether this call fails; errno is set then.
  bool fails(const std::string& call) {
    if (!on) return false;
    if (interrupts > 0 && call != "renameat") {
      --interrupts;
      errno = EINTR;
      return true;
    }
    if (call != failing || calls_before-- > 0 || failures-- <= 0) return false;
    errno = err;
    return true;
  }
};
FakeSystem fake;

std::string path_of(int fd) {
  char path[PATH_MAX];
  const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return std::string(path, n > 0 ? static_cast<size_t>(n) : 0);
}

// The last `parts` parts of a path, temporaries' names replaced.
std::string short_path(const std::string& path) {
  const size_t store = path.find("/store");
  std::string rest = store == std::string::npos ? path : path.substr(store + 1);
  if (rest.starts_with("store/tmp/")) rest = "store/tmp/*";
  return rest;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* bytes, size_t n) {
  const bool ours = fake.on && path_of(fd).find("/store/") != std::string::npos;
  if (!ours) return ::syscall(SYS_write, fd, bytes, n);
  if (fake.fails("write")) return -1;
  fake.log.push_back("write " + short_path(path_of(fd)));
  return ::syscall(SYS_write, fd, bytes, std::min(n, fake.max_write));
}

int fsync(int fd) {
  if (fake.fails("fsync")) return -1;
  if (fake.on) fake.log.push_back("fsync " + short_path(path_of(fd)));
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

int renameat(int from_dir, const char* from, int to_dir, const char* to) noexcept {
  if (fake.fails("renameat")) return -1;
  if (fake.on) {
    fake.log.push_back("rename " + short_path(path_of(from_dir) + "/" + from) + " " +
                       short_path(path_of(to_dir) + "/" + to));
  }
  return static_cast<int>(::syscall(SYS_renameat, from_dir, from, to_dir, to));
}

int flock(int fd, int operation) noexcept {
  if (fake.fails("flock")) return -1;
  if (fake.on && std::exchange(fake.steal_temporary, false)) ::unlink(path_of(fd).c_str());
  if (fake.on && fake.before_store_lock && path_of(fd).ends_with("/kvcodec-lock")) {
    std::exchange(fake.before_store_lock, {})();
  }
  return static_cast<int>(::syscall(SYS_flock, fd, operation));
}

}  // extern "C"

namespace kvcodec {
namespace {

class StoreSyscalls : public testing::Test {
 protected:
  void SetUp() override {
    store = open_store_here();
    ASSERT_TRUE(succeeds(store->put("old", to_bytes("old content"))));
  }
  void TearDown() override { fake = {}; }

  // put with `prepared` in force.
  Status put(std::string_view name, std::span<const std::byte> bytes, FakeSystem prepared) {
    fake = std::move(prepared);
    fake.on = true;
    Status status = store->put(name, bytes);
    fake.on = false;
    return status;
  }

  std::unique_ptr<FileStore> open_store_here() {
    auto opened = FileStore::open(dir / "store");
    EXPECT_TRUE(succeeds(opened));
    return *std::move(opened);
  }

  const TempDir dir;
  std::unique_ptr<FileStore> store;
};

TEST_F(StoreSyscalls, PutIsDurableInTheRightOrder) {
  ASSERT_TRUE(succeeds(put("ns/a", to_bytes("content"), {})));
  const std::string object = StoreRoot::object_path("ns/a");
  EXPECT_EQ(fake.log, (std::vector<std::string>{"write store/tmp/*", "fsync store/tmp/*",
                                                "rename store/tmp/* store/objects/" + object,
                                                "fsync store/objects/" + object.substr(0, 2)}));
}

TEST_F(StoreSyscalls, NewFoldersAreDurableInTheirParents) {
  fake.on = true;
  ASSERT_TRUE(succeeds(FileStore::open(dir / "store-new/inner")));
  fake.on = false;
  const auto position = [&](const std::string& entry) {
    const auto found = std::find(fake.log.begin(), fake.log.end(), entry);
    EXPECT_NE(found, fake.log.end()) << "missing: " << entry;
    return found - fake.log.begin();
  };
  position("fsync " + dir.path().string());
  const auto parent = position("fsync store-new");
  const auto marker = position("fsync store-new/inner/kvcodec-store.new");
  const auto rename =
      position("rename store-new/inner/kvcodec-store.new store-new/inner/kvcodec-store");
  const auto root = position("fsync store-new/inner");
  const auto shards = position("fsync store-new/inner/objects");
  EXPECT_LT(parent, marker);
  EXPECT_LT(marker, rename);
  EXPECT_LT(rename, root);
  EXPECT_LT(root, shards);
  EXPECT_EQ(fake.log.back(), "fsync store-new/inner") << "objects/ and tmp/ themselves";
}

TEST_F(StoreSyscalls, ShortWritesAndSignalsDoNotHarm) {
  const auto bytes = make_sealed("a", 1, 1000);
  ASSERT_TRUE(succeeds(put("a", bytes, {.max_write = 7})));
  EXPECT_EQ(std::count(fake.log.begin(), fake.log.end(), "write store/tmp/*"), 143);
  EXPECT_EQ(*get_object(*store, "a", 1000), bytes);
  for (int interrupts = 1; interrupts < 12; ++interrupts) {
    const auto other = make_sealed("a", static_cast<uint64_t>(interrupts), 500);
    ASSERT_TRUE(succeeds(put("a", other, {.max_write = 200, .interrupts = interrupts})));
    EXPECT_EQ(fake.interrupts, 0);
    EXPECT_EQ(*get_object(*store, "a", 1000), other);
  }
}

struct Failure {
  const char* call;
  int err;
  int calls_before;
  const char* path;
};

TEST_F(StoreSyscalls, AFailedPutChangesNothingAndLeavesNothing) {
  for (const Failure& failure :
       {Failure{"write", ENOSPC, 0, "store/tmp/"}, Failure{"write", ENOSPC, 3, "store/tmp/"},
        Failure{"write", EDQUOT, 0, "store/tmp/"}, Failure{"write", EIO, 1, "store/tmp/"},
        Failure{"fsync", EIO, 0, "store/tmp/"}, Failure{"renameat", ENOSPC, 0, "store/objects/"},
        Failure{"flock", ENOLCK, 0, "store/tmp/"},
        Failure{"flock", ENOLCK, 1, "store/kvcodec-lock"}}) {
    for (const char* name : {"old", "new"}) {
      const Status status = put(name, to_bytes("some other content"),
                                {.max_write = 4,
                                 .failing = failure.call,
                                 .err = failure.err,
                                 .calls_before = failure.calls_before});
      EXPECT_TRUE(fails_with(status, ErrorCode::io, std::strerror(failure.err))) << failure.call;
      EXPECT_TRUE(fails_with(status, ErrorCode::io, failure.path)) << failure.call;
      EXPECT_EQ(count_entries(dir / "store/tmp"), 0u) << failure.call;
      EXPECT_EQ(names_of(*store), std::vector<std::string>{"old"});
      EXPECT_EQ(*get_object(*store, "old", 100), to_bytes("old content"));
    }
  }
}

// The object is there, but the caller may not count on it after a power failure, and is told.
TEST_F(StoreSyscalls, PutReportsAnObjectThatMayNotBeDurable) {
  const Status status =
      put("new", to_bytes("content"), {.failing = "fsync", .err = EIO, .calls_before = 1});
  EXPECT_TRUE(fails_with(status, ErrorCode::io, "store/objects/"));
  EXPECT_EQ(count_entries(dir / "store/tmp"), 0u);
  EXPECT_EQ(*get_object(*store, "new", 100), to_bytes("content"));
}

// A sweeper takes a new temporary for a leftover, between its creation and its lock: it still has
// it locked, or has removed it already.
TEST_F(StoreSyscalls, AWriterThatLosesItsTemporaryToASweeperTakesAnother) {
  for (const bool removed : {false, true}) {
    FakeSystem sweeper{.failing = "flock", .err = EWOULDBLOCK, .failures = 1};
    if (removed) sweeper = {.steal_temporary = true};
    const auto bytes = make_sealed("new", removed, 100);
    ASSERT_TRUE(succeeds(put("new", bytes, sweeper)));
    EXPECT_FALSE(removed ? fake.steal_temporary : fake.failures > 0) << "it did not happen";
    EXPECT_EQ(*get_object(*store, "new", 100), bytes);
    EXPECT_EQ(count_entries(dir / "store/tmp"), 0u);
  }
}

// Of two puts, the one that is seen last is used last, though it was written first.
TEST_F(StoreSyscalls, TheOrderOfUseIsTheOrderOfCommits) {
  bool committed = false;
  const auto put_other = [&] { committed = open_store_here()->put("second", to_bytes("b")).ok(); };
  ASSERT_TRUE(succeeds(put("first", to_bytes("a"), {.before_store_lock = put_other})));
  EXPECT_TRUE(committed);
  EXPECT_GT(store->stat("first")->last_used, store->stat("second")->last_used);
}

}  // namespace
}  // namespace kvcodec
