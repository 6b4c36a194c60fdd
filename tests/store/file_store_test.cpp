// SPDX-License-Identifier: Apache-2.0
// What is special to FileStore: its folder, leftovers, and what others may have put there.
#include "store/file_store.h"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "sealed_bytes.h"
#include "store/temp_file.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

namespace fs = std::filesystem;
using std::chrono::system_clock;

class FileStoreTest : public testing::Test {
 protected:
  Result<std::unique_ptr<FileStore>> try_open(FileStoreOptions options = {}) {
    return FileStore::open(root.string(), options);
  }
  std::unique_ptr<FileStore> open(FileStoreOptions options = {}) {
    auto store = try_open(options);
    EXPECT_TRUE(succeeds(store));
    return *std::move(store);
  }
  fs::path file_of(std::string_view name) {
    return root / "objects" / StoreRoot::object_path(name);
  }
  // The sum that the store keeps; none where it is void.
  std::optional<uint64_t> recorded_total() {
    auto store_root = StoreRoot::open(root.string());
    EXPECT_TRUE(succeeds(store_root));
    auto ledger = UsageLedger::lock(*store_root);
    EXPECT_TRUE(succeeds(ledger));
    return ledger->total();
  }

  const TempDir dir;
  const fs::path root = dir.path() / "store";
};

TEST_F(FileStoreTest, LaysOutItsFolder) {
  auto store = open();
  ASSERT_TRUE(succeeds(store->put("ns/key/exact", to_bytes("content"))));
  std::vector<std::string> entries;
  for (const auto& entry : fs::directory_iterator(root)) entries.push_back(entry.path().filename());
  std::sort(entries.begin(), entries.end());
  EXPECT_EQ(entries, (std::vector<std::string>{"kvcodec-lock", "kvcodec-store", "objects", "tmp"}));
  std::ifstream marker(root / "kvcodec-store");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(marker), {}), "kvcodec store, layout 1\n");
  EXPECT_EQ(file_of("ns/key/exact").filename(), "ns+key+exact");
  EXPECT_EQ(fs::file_size(file_of("ns/key/exact")), 7u);
  EXPECT_EQ(count_entries(root / "objects"), 64u);
}

TEST_F(FileStoreTest, AcceptsNewEmptyAndHalfMadeFolders) {
  EXPECT_TRUE(succeeds(try_open()));
  EXPECT_TRUE(succeeds(try_open())) << "again";
  for (const char* leftover : {"", "kvcodec-lock", "kvcodec-store.new", "lost+found"}) {
    fs::remove_all(root);
    fs::create_directory(root);
    if (std::string_view(leftover) == "lost+found") {
      fs::create_directory(root / leftover);
    } else if (*leftover != 0) {
      write_text(root / leftover, "kvc");
    }
    ASSERT_TRUE(succeeds(try_open())) << leftover;
    ASSERT_TRUE(succeeds(open()->put("a", to_bytes("x"))));
  }
}

TEST_F(FileStoreTest, RefusesForeignFoldersAndLeavesThemAlone) {
  for (const char* foreign : {"thesis.tex", "objects/00/a", "tmp/x", ".git/config", "kvcodec"}) {
    fs::remove_all(root);
    fs::create_directories((root / foreign).parent_path());
    write_text(root / foreign, "precious");
    EXPECT_TRUE(fails_with(try_open(), ErrorCode::invalid_argument, "not a KVCodec store"))
        << foreign;
    EXPECT_EQ(count_entries(root), 1u);
    EXPECT_EQ(fs::file_size(root / foreign), 8u);
  }
}

TEST_F(FileStoreTest, RefusesOtherMarkers) {
  open();
  const auto with_marker = [&](const std::string& text) {
    write_text(root / "kvcodec-store", text);
    return try_open();
  };
  EXPECT_TRUE(fails_with(with_marker("kvcodec store, layout 2\n"), ErrorCode::unsupported,
                         "store layout 2; this build knows layout 1"));
  for (const char* text : {"", "kvcodec", "kvcodec store, layout 1", "something else\n"}) {
    EXPECT_TRUE(fails_with(with_marker(text), ErrorCode::invalid_argument, "kvcodec-store"))
        << text;
  }
  EXPECT_TRUE(succeeds(with_marker("kvcodec store, layout 1\n")));
}

TEST_F(FileStoreTest, RefusesAFileAsFolder) {
  write_text(root, "file");
  EXPECT_TRUE(fails_with(try_open(), ErrorCode::io, root.string() + ": Not a directory"));
  EXPECT_TRUE(fails_with(FileStore::open((root / "below").string()), ErrorCode::io, root.string()));
}

TEST_F(FileStoreTest, OpensThroughASymbolicLink) {
  fs::create_directory(dir / "elsewhere");
  fs::create_symlink(dir / "elsewhere", root);
  ASSERT_TRUE(succeeds(open()->put("a", to_bytes("x"))));
  EXPECT_TRUE(fs::exists(dir / "elsewhere/kvcodec-store"));
}

TEST_F(FileStoreTest, FollowsNoLinkInsideItsFolder) {
  auto store = open();
  write_text(dir / "secret", "secret");
  fs::create_symlink(dir / "secret", file_of("a"));
  std::array<std::byte, 10> out;
  EXPECT_TRUE(fails_with(store->get("a", out, 0), ErrorCode::not_found));
  EXPECT_TRUE(fails_with(store->stat("a"), ErrorCode::not_found));
  EXPECT_TRUE(fails_with(store->remove("a"), ErrorCode::not_found));
  EXPECT_TRUE(names_of(*store).empty());
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("object"))));
  EXPECT_EQ(*get_object(*store, "a", 10), to_bytes("object"));
  EXPECT_EQ(fs::file_size(dir / "secret"), 6u) << "put must replace the link, not follow it";
  store.reset();

  fs::remove_all(root / "objects/00");
  fs::create_directory_symlink(dir.path(), root / "objects/00");
  EXPECT_TRUE(fails_with(try_open(), ErrorCode::io, "objects/00"));
  for (const char* folder : {"objects", "tmp"}) {
    fs::remove_all(root / folder);
    fs::create_directory_symlink(dir.path(), root / folder);
    EXPECT_TRUE(fails_with(try_open(), ErrorCode::io, folder));
    fs::remove(root / folder);
  }
}

TEST_F(FileStoreTest, IgnoresWhatIsNoObject) {
  auto store = open();
  fs::create_directory(file_of("folder"));
  ASSERT_EQ(::mkfifo(file_of("pipe").c_str(), 0600), 0);
  write_text(file_of("a").parent_path() / "UPPER", "x");
  write_text(file_of("a").parent_path() / "..+x", "x");
  const std::string other_shard = file_of("a").parent_path().filename() == "00" ? "01" : "00";
  write_text(root / "objects" / other_shard / "a", "in the wrong folder");
  EXPECT_TRUE(names_of(*store).empty());
  std::array<std::byte, 10> out;
  for (const char* name : {"folder", "pipe", "a"}) {
    EXPECT_TRUE(fails_with(store->get(name, out, 0), ErrorCode::not_found)) << name;
    EXPECT_TRUE(fails_with(store->remove(name), ErrorCode::not_found)) << name;
  }
  EXPECT_TRUE(fails_with(store->put("folder", to_bytes("x")), ErrorCode::io, "Is a directory"));
  EXPECT_EQ(count_entries(root / "tmp"), 0u);
}

TEST_F(FileStoreTest, SweepsLeftoversButNoLiveWriter) {
  auto store = open();
  const int tmp = ::open((root / "tmp").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_GE(tmp, 0);
  {
    auto live = TempFile::create(tmp, "tmp");
    ASSERT_TRUE(succeeds(live));
    write_text(root / "tmp/1-dead", "half");
    fs::create_symlink(dir / "nowhere", root / "tmp/link");
    EXPECT_EQ(count_entries(root / "tmp"), 3u);
    EXPECT_TRUE(names_of(*store).empty());
    EXPECT_FALSE(fs::exists(root / "tmp/1-dead")) << "list sweeps";
    EXPECT_EQ(count_entries(root / "tmp"), 2u);
    write_text(root / "tmp/2-dead", "half");
    open();
    EXPECT_FALSE(fs::exists(root / "tmp/2-dead")) << "open sweeps";
    write_text(root / "tmp/3-dead", "half");
    ASSERT_TRUE(succeeds(collect_garbage(*store, 0)));
    EXPECT_FALSE(fs::exists(root / "tmp/3-dead")) << "collect_garbage sweeps";
    ASSERT_TRUE(succeeds(live->write(to_bytes("alive"))));
  }
  EXPECT_EQ(count_entries(root / "tmp"), 1u) << "a writer that gives up leaves nothing";
  ::close(tmp);
}

TEST_F(FileStoreTest, RecordsUsesOnceAnInterval) {
  auto store = open();  // a minute
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("x"))));
  const auto put_time = store->stat("a")->last_used;
  std::array<std::byte, 1> out;
  ASSERT_TRUE(succeeds(store->get("a", out, 0)));
  EXPECT_EQ(store->stat("a")->last_used, put_time) << "within a minute of the last";
  const auto set_time = [&](system_clock::time_point time) {
    const timespec times[2] = {to_timespec(time), to_timespec(time)};
    ASSERT_EQ(::utimensat(AT_FDCWD, file_of("a").c_str(), times, 0), 0);
    ASSERT_TRUE(succeeds(store->get("a", out, 0)));
  };
  set_time(system_clock::now() - std::chrono::minutes(2));
  EXPECT_GE(store->stat("a")->last_used, put_time);
  set_time(system_clock::now() + std::chrono::hours(1000));
  EXPECT_LT(store->stat("a")->last_used, system_clock::now() + std::chrono::hours(1))
      << "a clock that was set back must not keep objects for ever";
}

TEST_F(FileStoreTest, KeepsTheSumOfItsObjects) {
  auto store = open({.max_bytes = 1000});
  EXPECT_EQ(recorded_total(), std::nullopt) << "nothing was counted yet";
  ASSERT_TRUE(succeeds(store->put("a", std::vector<std::byte>(400))));
  EXPECT_EQ(recorded_total(), 400u);
  ASSERT_TRUE(succeeds(open()->put("b", std::vector<std::byte>(300))));
  EXPECT_EQ(recorded_total(), 700u) << "also by a process that has no bound";
  ASSERT_TRUE(succeeds(store->put("a", std::vector<std::byte>(100))));
  EXPECT_EQ(recorded_total(), 400u);
  ASSERT_TRUE(succeeds(store->put("c", std::vector<std::byte>(700))));
  EXPECT_EQ(recorded_total(), 800u) << "b was evicted";
  ASSERT_TRUE(succeeds(store->remove("c")));
  EXPECT_EQ(recorded_total(), 100u);
}

TEST_F(FileStoreTest, CountsAnewAfterAnInterruptedChange) {
  auto store = open({.max_bytes = 1000});
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(succeeds(store->put(name, std::vector<std::byte>(400))));
  }
  {
    auto store_root = StoreRoot::open(root.string());
    ASSERT_TRUE(succeeds(store_root));
    auto ledger = UsageLedger::lock(*store_root);
    ASSERT_TRUE(succeeds(ledger));
    ASSERT_TRUE(succeeds(ledger->begin_change()));
    fs::remove(file_of("a"));  // and die
  }
  EXPECT_EQ(recorded_total(), std::nullopt);
  ASSERT_TRUE(succeeds(store->put("c", std::vector<std::byte>(600))));
  EXPECT_EQ(names_of(*store), (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(recorded_total(), 1000u);
}

TEST_F(FileStoreTest, TrustsNoDamagedRecord) {
  auto store = open({.max_bytes = 1000});
  ASSERT_TRUE(succeeds(store->put("a", std::vector<std::byte>(400))));
  ASSERT_TRUE(succeeds(store->put("b", std::vector<std::byte>(400))));
  std::ifstream in(root / "kvcodec-lock", std::ios::binary);
  const std::string record(std::istreambuf_iterator<char>(in), {});
  ASSERT_EQ(record.size(), 52u);
  for (size_t i = 0; i < record.size(); ++i) {
    std::string damaged = record;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    write_text(root / "kvcodec-lock", damaged);
    EXPECT_EQ(recorded_total(), std::nullopt) << i;
    write_text(root / "kvcodec-lock", record.substr(0, i));
    EXPECT_EQ(recorded_total(), std::nullopt) << i;
  }
  // The record of another boot, whole.
  ByteWriter other;
  other.put_bytes(to_bytes(std::string(36, '0')));
  other.put(uint64_t{0});
  other.put(checksum64(other.bytes()));
  write_text(root / "kvcodec-lock",
             std::string(reinterpret_cast<const char*>(other.bytes().data()), other.size()));
  EXPECT_EQ(recorded_total(), std::nullopt);
  ASSERT_TRUE(succeeds(store->put("c", std::vector<std::byte>(400))));
  EXPECT_EQ(names_of(*store), (std::vector<std::string>{"b", "c"}));
}

TEST_F(FileStoreTest, SurvivesFilesAddedAndRemovedByHand) {
  auto store = open({.max_bytes = 1000});
  ASSERT_TRUE(succeeds(store->put("a", std::vector<std::byte>(400))));
  write_text(file_of("b"), std::string(900, 'x'));
  ASSERT_TRUE(succeeds(store->put("b", std::vector<std::byte>(10))));
  EXPECT_EQ(names_of(*store), (std::vector<std::string>{"a", "b"}));
  write_text(file_of("c"), std::string(5000, 'x'));
  ASSERT_TRUE(succeeds(store->put("c", std::vector<std::byte>(700))));
  EXPECT_LE(store->stat("c")->bytes + (store->stat("a").ok() ? 400u : 0u), 1000u);
  for (const char* name : {"a", "b"}) fs::remove(file_of(name));
  for (const char* name : {"d", "e", "f"}) {
    ASSERT_TRUE(succeeds(store->put(name, std::vector<std::byte>(300))));
  }
  EXPECT_EQ(names_of(*store), (std::vector<std::string>{"d", "e", "f"}));
}

// More objects than the store remembers as candidates (4096), evicted by one put.
TEST_F(FileStoreTest, EvictsManyAtOnce) {
  open();
  const auto start = system_clock::now() - std::chrono::hours(10);
  for (int i = 0; i < 5000; ++i) {
    const std::string name = fmt::format("n{}", i);
    write_text(file_of(name), "x");
    const auto time = to_timespec(start + std::chrono::seconds(i));
    const timespec times[2] = {time, time};
    ASSERT_EQ(::utimensat(AT_FDCWD, file_of(name).c_str(), times, 0), 0);
  }
  auto store = open({.max_bytes = 5000});
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("12"))));
  EXPECT_TRUE(fails_with(store->stat("n1"), ErrorCode::not_found));
  EXPECT_TRUE(succeeds(store->stat("n2"))) << "the third oldest";
  EXPECT_EQ(names_of(*store).size(), 4999u);
  ASSERT_TRUE(succeeds(store->put("b", std::vector<std::byte>(4990))));
  EXPECT_EQ(names_of(*store),
            (std::vector<std::string>{"a", "b", "n4992", "n4993", "n4994", "n4995", "n4996",
                                      "n4997", "n4998", "n4999"}));
}

// As another user: root may do everything, so that a root's test gives up that right for a while.
class AsNobody {
 public:
  AsNobody() { ::setfsuid(65534); }
  ~AsNobody() { ::setfsuid(::geteuid()); }
};

TEST_F(FileStoreTest, ReportsFoldersItMayNotWriteAndStillReads) {
  const fs::path tmp = root / "tmp";
  fs::permissions(dir.path(), fs::perms(0755));
  ASSERT_TRUE(succeeds(open()->put("a", to_bytes("readable"))));
  for (const auto& folder : {root, tmp, root / "objects", file_of("a").parent_path()}) {
    fs::permissions(folder, fs::perms(0555));
  }
  fs::permissions(root / "kvcodec-lock", fs::perms(0444));
  {
    const AsNobody unprivileged;
    auto store = open({.max_bytes = 100, .use_interval = std::chrono::seconds(0)});
    EXPECT_EQ(*get_object(*store, "a", 100), to_bytes("readable"));
    EXPECT_EQ(names_of(*store), std::vector<std::string>{"a"});
    EXPECT_TRUE(fails_with(store->put("b", to_bytes("x")), ErrorCode::io, tmp.string() + "/"));
    EXPECT_TRUE(fails_with(store->put("b", to_bytes("x")), ErrorCode::io, "Permission denied"));
    EXPECT_TRUE(fails_with(store->remove("a"), ErrorCode::io, "Permission denied"));
    EXPECT_TRUE(
        fails_with(FileStore::open((root / "new").string()), ErrorCode::io,
                   fmt::format("create folder {}: Permission denied", (root / "new").string())));
  }
  // Temporaries may be written, objects may not be renamed into place.
  fs::permissions(tmp, fs::perms(0777));
  fs::permissions(root / "kvcodec-lock", fs::perms(0666));
  {
    const AsNobody unprivileged;
    auto store = open();
    EXPECT_TRUE(fails_with(store->put("a", to_bytes("x")), ErrorCode::io, "Permission denied"));
    EXPECT_EQ(count_entries(tmp), 0u) << "no temporary is left";
    EXPECT_EQ(*get_object(*store, "a", 100), to_bytes("readable"));
  }
  fs::permissions(file_of("a"), fs::perms(0));
  {
    const AsNobody unprivileged;
    EXPECT_TRUE(fails_with(get_object(*open(), "a", 10), ErrorCode::io, file_of("a").string()));
  }
  for (const auto& folder : {root, root / "objects", file_of("a").parent_path()}) {
    fs::permissions(folder, fs::perms::owner_all);
  }
}

TEST_F(FileStoreTest, ReportsAFolderThatWentAway) {
  auto store = open();
  ASSERT_TRUE(succeeds(store->put("a", to_bytes("x"))));
  fs::remove_all(root);
  std::array<std::byte, 1> out;
  EXPECT_TRUE(fails_with(store->get("a", out, 0), ErrorCode::not_found));
  EXPECT_TRUE(fails_with(store->put("a", to_bytes("x")), ErrorCode::io, "No such file"));
}

}  // namespace
}  // namespace kvcodec
