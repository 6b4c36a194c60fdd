// SPDX-License-Identifier: Apache-2.0
// Publishers are killed at random moments. Whatever they were doing, the store opens, every object
// in it is whole, what was acknowledged is there, and nothing is left over.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <set>

#include "child_process.h"
#include "sealed_bytes.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

constexpr unsigned kNames = 12;
constexpr unsigned kMaxSize = 200'000;

// What a publisher tells about itself, in memory that outlives it.
struct Progress {
  std::atomic<bool> opened;
  std::atomic<uint64_t> puts;
  struct {
    std::atomic<uint64_t> begun, acknowledged;
  } versions[kNames];
};

class SharedProgress {
 public:
  SharedProgress() {
    void* memory = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
    progress_ = new (memory) Progress{};
  }
  ~SharedProgress() { ::munmap(progress_, sizeof(Progress)); }
  Progress* operator->() { return progress_; }
  Progress& operator*() { return *progress_; }

 private:
  Progress* progress_;
};

// A random number below `end`.
unsigned below(std::mt19937& random, unsigned end) { return static_cast<unsigned>(random() % end); }

template <typename Condition>
bool wait_for(Condition condition) {
  for (int i = 0; i < 600'000 && !condition(); ++i) ::usleep(50);
  return condition();
}

std::string name_of(unsigned i) { return fmt::format("chunk/{}", i); }

// Puts objects until it is killed.
int publish(const std::string& path, uint64_t max_bytes, unsigned seed, Progress& progress) {
  auto store = FileStore::open(path, {.max_bytes = max_bytes});
  if (!store.ok()) {
    std::fprintf(stderr, "publisher: %s\n", store.error().message.c_str());
    return 1;
  }
  progress.opened = true;
  std::mt19937 random(seed);
  for (;;) {
    const unsigned i = below(random, kNames);
    auto& versions = progress.versions[i];
    const uint64_t version = versions.begun.load() + 1;
    const auto bytes = make_sealed(name_of(i), version, below(random, kMaxSize));
    versions.begun = version;
    if (!(*store)->put(name_of(i), bytes).ok()) return 2;
    versions.acknowledged = version;
    ++progress.puts;
  }
}

// Opens the store and checks all that is promised. Returns how many objects there are.
size_t check_store(const std::string& path, uint64_t max_bytes, Progress* only_publisher) {
  auto opened = FileStore::open(path);
  EXPECT_TRUE(succeeds(opened));
  if (!opened.ok()) return 0;
  Store& store = **opened;
  EXPECT_EQ(count_entries(path + "/tmp"), 0u) << "open leaves no temporary of a dead writer";
  const auto objects = store.list();
  EXPECT_TRUE(succeeds(objects));
  uint64_t total = 0;
  std::set<std::string> names;
  for (const auto& object : *objects) {
    total += object.bytes;
    names.insert(object.name);
    const auto bytes = get_object(store, object.name, kMaxSize);
    EXPECT_TRUE(succeeds(bytes));
    EXPECT_TRUE(bytes.ok() && sealed_version(object.name, *bytes)) << object.name;
  }
  if (max_bytes > 0) {
    EXPECT_LE(total, max_bytes);
  }
  for (unsigned i = 0; only_publisher && i < kNames; ++i) {
    const auto& versions = only_publisher->versions[i];
    if (versions.acknowledged == 0 && !names.contains(name_of(i))) continue;
    const auto bytes = get_object(store, name_of(i), kMaxSize);
    EXPECT_TRUE(succeeds(bytes)) << "acknowledged and lost";
    if (!bytes.ok()) continue;
    const uint64_t version = sealed_version(name_of(i), *bytes).value_or(0);
    EXPECT_GE(version, versions.acknowledged) << "an older version than was acknowledged";
    EXPECT_LE(version, versions.begun);
  }
  return names.size();
}

TEST(StoreKill, AcknowledgedObjectsSurviveThePublisher) {
  const TempDir dir;
  const std::string path = dir / "store";
  SharedProgress progress;
  std::mt19937 random(1);
  size_t leftovers = 0, objects = 0;
  int kills = 0;
  // Until some met a put under way, or the test would show nothing.
  for (; kills < 60 || (leftovers == 0 && kills < 1000); ++kills) {
    progress->opened = false;
    const unsigned seed = below(random, 1u << 30);
    ChildProcess publisher([&] { return publish(path, 0, seed, *progress); });
    // Some die before they have opened the store.
    const bool early = kills % 5 == 0;
    ASSERT_TRUE(early || wait_for([&] { return progress->opened.load(); }));
    ::usleep(below(random, early ? 3000 : 30000));
    ASSERT_EQ(publisher.kill(), 128 + SIGKILL) << "it ended by itself";
    if (std::filesystem::exists(path + "/tmp")) leftovers += count_entries(path + "/tmp");
    objects = check_store(path, 0, &*progress);
    if (HasFailure()) FAIL() << "after kill " << kills;
  }
  EXPECT_GT(leftovers, 0u);
  EXPECT_GT(objects, 0u);
  std::printf("%d kills, %llu puts, %zu temporaries left and swept\n", kills,
              static_cast<unsigned long long>(progress->puts), leftovers);
}

TEST(StoreKill, TheBoundHoldsThoughEvictingPublishersDie) {
  const TempDir dir;
  const std::string path = dir / "store";
  constexpr uint64_t kBound = 500'000;
  SharedProgress progress;
  std::mt19937 random(2);
  for (int kill = 0; kill < 20; ++kill) {
    const uint64_t puts_before = progress->puts;
    std::vector<ChildProcess> publishers;
    for (int i = 0; i < 2; ++i) {
      const unsigned seed = below(random, 1u << 30);
      publishers.emplace_back([&, seed] { return publish(path, kBound, seed, *progress); });
    }
    ASSERT_TRUE(wait_for([&] { return progress->puts >= puts_before + 3; }));
    // A reader meanwhile, which sees whole objects or none.
    auto reader = FileStore::open(path);
    ASSERT_TRUE(succeeds(reader));
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::microseconds(below(random, 30000));
    do {
      const std::string name = name_of(below(random, kNames));
      const auto bytes = get_object(**reader, name, kMaxSize);
      if (bytes.ok()) {
        EXPECT_TRUE(sealed_version(name, *bytes)) << name;
      } else {
        EXPECT_EQ(bytes.error().code, ErrorCode::not_found) << bytes.error().message;
      }
    } while (std::chrono::steady_clock::now() < end);
    for (auto& publisher : publishers) ASSERT_EQ(publisher.kill(), 128 + SIGKILL);
    check_store(path, kBound, nullptr);
    if (HasFailure()) FAIL() << "after kill " << kill;
  }
}

TEST(StoreKill, ACreationCutShortIsFinishedByTheNext) {
  const TempDir dir;
  const std::string path = dir / "store";
  std::mt19937 random(3);
  int unfinished = 0;
  for (int kill = 0; kill < 30 || (unfinished == 0 && kill < 1000); ++kill) {
    SharedProgress progress;
    ChildProcess publisher([&] { return publish(path, 0, 1, *progress); });
    // From the first entry on; before that there is nothing to cut short.
    ASSERT_TRUE(wait_for([&] { return std::filesystem::exists(path); }));
    ::usleep(below(random, 1500));
    ASSERT_EQ(publisher.kill(), 128 + SIGKILL);
    if (!progress->opened) ++unfinished;
    check_store(path, 0, &*progress);
    if (HasFailure()) FAIL() << "after kill " << kill;
    std::filesystem::remove_all(path);
  }
  EXPECT_GT(unfinished, 0);
  std::printf("%d creations were cut short\n", unfinished);
}

}  // namespace
}  // namespace kvcodec
