// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "gpu/device_memory.h"
#include "gpu/mixing_profile.h"
#include "unit/codec/codec_cases.h"

namespace kvcodec {
namespace {

using testing_codec::Cache;

// One of the objects that chunks are made of, and what it restores to.
struct Kind {
  Cache cache;
  std::vector<std::byte> object, expected;
  const Profile* profile = nullptr;
};

enum class Fate { good, damaged, cancelled };

struct Counts {
  std::atomic<uint64_t> restored = 0, refused = 0, cancelled = 0, wrong = 0;
};

// Ten thousand chunks of every tier in random order, from several threads, one in eight damaged and
// one in eight cancelled at a random moment: each that is reported right is right, every damaged
// one is reported, and device memory is what it was.
TEST(DeviceSoak, TenThousandChunks) {
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  auto restorer = DeviceRestorer::create({.max_device_bytes = kBytes});
  if (!restorer.ok()) GTEST_SKIP() << restorer.error().message;
  const auto driver = *CudaDriver::open(0);
  const KvShape shape = {4, 4, 64, 64, DType::f16};
  const Rope rope = *make_rope(Rope::Style::neox, 64, 10000);
  const Profile profile = mixing_profile(shape, rope, 2);
  std::vector<Kind> kinds;
  for (const Tier tier : {Tier::exact, Tier::int8, Tier::high, Tier::small}) {
    for (const uint32_t tokens : {64u, 256u}) {
      Kind kind;
      kind.cache = testing_codec::random_values(shape, tokens, tokens);
      kind.profile = is_calibrated(tier) ? &profile : nullptr;
      EncodeOptions options;
      options.tier = tier;
      options.rope = rope;
      options.profile = kind.profile;
      options.verify = false;
      auto object = encode_chunk(kind.cache.source(), {0, tokens}, {}, options);
      ASSERT_TRUE(object.ok()) << object.error().message;
      kind.object = *std::move(object);
      kind.expected.resize(kind.cache.memory.size());
      DecodeOptions decode;
      decode.profile = kind.profile;
      ASSERT_TRUE(decode_chunk(kind.object, {kind.expected, &kind.cache.geometry}, 0, decode).ok());
      kinds.push_back(std::move(kind));
    }
  }
  Counts counts;
  const auto rounds = [&](uint32_t seed, int chunks) {
    std::mt19937 random(seed);
    constexpr size_t kAtOnce = 25;
    const size_t room = kinds[1].cache.memory.size();  // the largest
    const DeviceMemory memory(*driver, std::vector<std::byte>(kAtOnce * room));
    for (int done = 0; done < chunks; done += kAtOnce) {
      std::vector<size_t> which;
      std::vector<Fate> fates;
      std::vector<std::vector<std::byte>> objects;
      std::vector<std::stop_source> stops(kAtOnce);
      std::vector<DeviceRestoreJob> jobs(kAtOnce);
      for (size_t i = 0; i < kAtOnce; ++i) {
        which.push_back(random() % kinds.size());
        const uint32_t fate = random() % 8;
        fates.push_back(fate == 0 ? Fate::damaged : fate == 1 ? Fate::cancelled : Fate::good);
        objects.push_back(kinds[which[i]].object);
        if (fates[i] == Fate::damaged)
          objects[i][random() % objects[i].size()] ^= static_cast<std::byte>(1 + random() % 255);
      }
      for (size_t i = 0; i < kAtOnce; ++i) {
        const Kind& kind = kinds[which[i]];
        jobs[i].object = objects[i];
        jobs[i].target = memory.target(kind.cache.geometry);
        jobs[i].target.memory += i * room;
        jobs[i].target.bytes = kind.cache.memory.size();
        jobs[i].options.profile = kind.profile;
        jobs[i].stop = stops[i].get_token();
      }
      std::jthread canceller([&, pause = random() % 3000] {
        std::this_thread::sleep_for(std::chrono::microseconds(pause));
        for (size_t i = 0; i < kAtOnce; ++i)
          if (fates[i] == Fate::cancelled) stops[i].request_stop();
      });
      (*restorer)->restore(jobs);
      canceller.join();
      const std::vector<std::byte> found = memory.read();
      for (size_t i = 0; i < kAtOnce; ++i) {
        const std::vector<std::byte>& expected = kinds[which[i]].expected;
        if (jobs[i].status.ok()) {
          const bool same = std::equal(expected.begin(), expected.end(), found.begin() + i * room);
          ++(same && fates[i] != Fate::damaged ? counts.restored : counts.wrong);
        } else if (jobs[i].status.error().code == ErrorCode::cancelled) {
          ++(fates[i] == Fate::cancelled ? counts.cancelled : counts.wrong);
        } else {
          ++(fates[i] == Fate::damaged ? counts.refused : counts.wrong);
        }
      }
    }
  };
  const auto free_memory = [&] {
    size_t free = 0, total = 0;
    const CudaScope scope(*driver);
    EXPECT_EQ(driver->extras().mem_get_info(&free, &total), 0);
    return free;
  };
  rounds(0, 200);  // the pools fill
  const size_t before = free_memory();
  {
    std::vector<std::jthread> threads;
    for (uint32_t t = 1; t <= 4; ++t) threads.emplace_back([&, t] { rounds(t, 2500); });
  }
  const size_t after = free_memory();
  EXPECT_EQ(counts.wrong, 0u);
  EXPECT_EQ(counts.restored + counts.refused + counts.cancelled, 10200u);
  EXPECT_GT(counts.restored, 7000u);
  EXPECT_GT(counts.refused, 1000u);
  EXPECT_GT(counts.cancelled, 100u);
  // What pools and NVDEC sessions keep is bounded by the option.
  EXPECT_GE(after + kBytes, before);
  RecordProperty("restored", static_cast<int>(counts.restored));
  RecordProperty("refused", static_cast<int>(counts.refused));
  RecordProperty("cancelled", static_cast<int>(counts.cancelled));
  fmt::print(
      "restored {}, refused {}, cancelled {}; device memory free before {} MB, after {} MB\n",
      counts.restored.load(), counts.refused.load(), counts.cancelled.load(), before >> 20,
      after >> 20);
}

}  // namespace
}  // namespace kvcodec
