// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "gpu/device_memory.h"
#include "gpu/mixing_profile.h"
#include "kvcodec/profile.h"
#include "unit/codec/codec_cases.h"
#include "unit/layout/kv_geometries.h"

namespace kvcodec {
namespace {

using testing_codec::Cache;

std::string message(const Status& status) { return status.ok() ? "ok" : status.error().message; }

// Everything that is restored on the device must be, byte for byte, what decode_chunk leaves in
// host memory, and nothing else may be touched.
class DeviceRestoreTest : public testing::Test {
 protected:
  void SetUp() override {
    auto restorer = DeviceRestorer::create();
    if (!restorer.ok()) {
      ASSERT_EQ(restorer.error().code, ErrorCode::unsupported) << restorer.error().message;
      GTEST_SKIP() << restorer.error().message;
    }
    restorer_ = *std::move(restorer);
    driver_ = *CudaDriver::open(0);
  }

  void expect_same(std::span<const std::byte> object, const KvGeometry& geometry, size_t bytes,
                   uint32_t first_token, const DecodeOptions& options = {}) {
    std::vector<std::byte> host(bytes, std::byte{0x5a});
    const DeviceMemory device(*driver_, host);
    const Status on_host = decode_chunk(object, {std::span(host), &geometry}, first_token, options);
    ASSERT_EQ(message(on_host), "ok");
    DeviceRestoreJob job;
    job.object = object;
    job.target = device.target(geometry);
    job.first_token = first_token;
    job.options = options;
    restorer_->restore(std::span(&job, 1));
    ASSERT_EQ(message(job.status), message(on_host));
    const std::vector<std::byte> found = device.read();
    const auto difference = std::mismatch(host.begin(), host.end(), found.begin());
    ASSERT_TRUE(difference.first == host.end())
        << "first wrong byte " << difference.first - host.begin() << " of " << bytes;
  }

  std::vector<std::byte> encode(const Cache& cache, TokenRange range, EncodeOptions options) {
    options.verify = false;
    auto object = encode_chunk(cache.source(), range, testing_codec::some_id(range.first), options);
    EXPECT_TRUE(object.ok()) << (object.ok() ? "" : object.error().message);
    return *std::move(object);
  }

  std::unique_ptr<DeviceRestorer> restorer_;
  std::shared_ptr<const CudaDriver> driver_;
};

TEST(DeviceRestorerCreate, SaysWhatIsMissing) {
  const auto restorer = DeviceRestorer::create();
  if (restorer.ok()) return;
  EXPECT_EQ(restorer.error().code, ErrorCode::unsupported);
  EXPECT_FALSE(restorer.error().message.empty());
}

TEST_F(DeviceRestoreTest, EveryGeometryAndTier) {
  for (const auto& [name, geometry, bytes] : testing_kv::many_geometries(70)) {
    const Cache cache = testing_codec::random_values(geometry.shape, 70, 5);
    for (const Tier tier : {Tier::exact, Tier::int8}) {
      SCOPED_TRACE(name + " " + tier_name(tier));
      EncodeOptions options;
      options.tier = tier;
      options.max_picture_height = 144;
      if (geometry.shape.key_dim % 2 == 0)
        options.rope = *make_rope(Rope::Style::neox, geometry.shape.key_dim, 10000);
      expect_same(encode(cache, {0, 50}, options), geometry, bytes, 0);
      expect_same(encode(cache, {20, 50}, options), geometry, bytes, 7);
      expect_same(encode(cache, {69, 1}, options), geometry, bytes, 16);
    }
  }
}

TEST_F(DeviceRestoreTest, RealKv) {
  const Cache cache = testing_codec::real_cache();
  const uint32_t tokens = cache.geometry.tokens;
  for (const Tier tier : {Tier::exact, Tier::int8}) {
    EncodeOptions options;
    options.tier = tier;
    options.rope = testing_codec::real_rope();
    expect_same(encode(cache, {0, tokens}, options), cache.geometry, cache.memory.size(), 0);
    expect_same(encode(cache, {5, tokens - 5}, options), cache.geometry, cache.memory.size(), 3);
  }
}

TEST_F(DeviceRestoreTest, EveryBitPattern) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    const Cache cache = testing_codec::random_bits({2, 3, 64, 64, dtype}, 64, 11);
    expect_same(encode(cache, {0, 64}, {}), cache.geometry, cache.memory.size(), 0);
  }
}

// Shapes of models people serve: grouped and multi-head attention, heads larger than a picture.
TEST_F(DeviceRestoreTest, ModelShapes) {
  for (const KvShape& shape : {KvShape{4, 8, 128, 128, DType::bf16},
                               {2, 32, 128, 128, DType::f16},
                               {2, 1, 576, 0, DType::bf16},
                               {3, 2, 256, 256, DType::bf16}}) {
    const Cache cache = testing_codec::random_values(shape, 256, 3);
    for (const Rope::Style style : {Rope::Style::interleaved, Rope::Style::neox}) {
      EncodeOptions options;
      options.tier = Tier::int8;
      options.rope = *make_rope(style, 64, 500000);
      SCOPED_TRACE(testing_codec::fmt_shape(shape, 256));
      expect_same(encode(cache, {0, 256}, options), cache.geometry, cache.memory.size(), 0);
    }
  }
}

// Codes that samples cannot hold, among turned pairs too.
TEST_F(DeviceRestoreTest, Escapes) {
  Cache cache = testing_codec::random_values({2, 2, 64, 64, DType::f16}, 96, 4);
  std::mt19937 random(1);
  const auto below = [&random](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int i = 0; i < 200; ++i)
    cache.set(kKvKinds[below(2)], below(2), below(96), below(2), below(64), i % 2 ? 900 : -1200);
  EncodeOptions options;
  options.tier = Tier::int8;
  options.rope = *make_rope(Rope::Style::interleaved, 64, 10000);
  const auto object = encode(cache, {0, 96}, options);
  EXPECT_GT(read_chunk_info(object)->escapes, 100u);
  expect_same(object, cache.geometry, cache.memory.size(), 0);
}

TEST_F(DeviceRestoreTest, OtherPosition) {
  const Cache cache = testing_codec::random_values({2, 2, 64, 64, DType::bf16}, 300, 4);
  EncodeOptions options;
  options.tier = Tier::int8;
  options.rope = *make_rope(Rope::Style::neox, 64, 10000);
  const auto object = encode(cache, {100, 200}, options);
  for (const uint32_t position : {0u, 100u, 5000000u}) {
    DecodeOptions decode;
    decode.position = position;
    expect_same(object, cache.geometry, cache.memory.size(), 100, decode);
  }
}

TEST_F(DeviceRestoreTest, CalibratedTiers) {
  for (const KvShape& shape : {KvShape{5, 2, 64, 64, DType::bf16}, {3, 3, 32, 48, DType::f16}}) {
    const Rope rope = *make_rope(Rope::Style::neox, shape.key_dim, 10000);
    const Profile profile = mixing_profile(shape, rope, 2);
    const Cache cache = testing_codec::random_values(shape, 200, 6);
    for (const Tier tier : kCalibratedTiers) {
      SCOPED_TRACE(tier_name(tier));
      EncodeOptions options;
      options.tier = tier;
      options.profile = &profile;
      options.rope = rope;
      DecodeOptions decode;
      decode.profile = &profile;
      expect_same(encode(cache, {0, 200}, options), cache.geometry, cache.memory.size(), 0, decode);
      expect_same(encode(cache, {67, 65}, options), cache.geometry, cache.memory.size(), 67,
                  decode);
      decode.position = 777;
      expect_same(encode(cache, {67, 65}, options), cache.geometry, cache.memory.size(), 67,
                  decode);
    }
  }
}

TEST_F(DeviceRestoreTest, GoldenObjects) {
  size_t objects = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVCODEC_GOLDEN "/good")) {
    if (entry.path().extension() != ".kvc") continue;
    SCOPED_TRACE(entry.path().filename().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    const auto object = std::as_bytes(std::span(bytes));
    const auto info = read_chunk_info(object);
    ASSERT_TRUE(info.ok());
    if (is_calibrated(info->tier)) continue;  // CalibratedTiers has its own profile
    const KvGeometry geometry = KvGeometry::contiguous(info->shape, info->tokens);
    expect_same(object, geometry, geometry.contiguous_bytes(), 0);
    ++objects;
  }
  EXPECT_GE(objects, 20u);
}

// Damage anywhere is reported, and does not spread to the chunks beside it. From several threads,
// with little memory, so that chunks wait for each other.
TEST_F(DeviceRestoreTest, DamagedAmongGood) {
  auto restorer = DeviceRestorer::create({.max_device_bytes = 64 << 20});
  ASSERT_TRUE(restorer.ok());
  const Cache cache = testing_codec::random_values({4, 4, 64, 64, DType::f16}, 128, 8);
  EncodeOptions options;
  options.tier = Tier::int8;
  options.rope = *make_rope(Rope::Style::neox, 64, 10000);
  std::vector<std::vector<std::byte>> objects = {encode(cache, {0, 128}, options)};
  options.tier = Tier::exact;
  objects.push_back(encode(cache, {0, 128}, options));
  std::vector<std::vector<std::byte>> expected;
  for (const auto& object : objects) {
    expected.emplace_back(cache.memory.size());
    ASSERT_TRUE(decode_chunk(object, {expected.back(), &cache.geometry}, 0).ok());
  }
  std::atomic<int> refused = 0, restored = 0;
  std::vector<std::jthread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int round = 0; round < 12; ++round) {
        std::vector<std::vector<std::byte>> mine;
        std::vector<size_t> kinds;
        std::vector<bool> damaged;
        std::vector<DeviceMemory> memory;
        const std::vector<std::byte> blank(cache.memory.size());
        for (int i = 0; i < 10; ++i) {
          kinds.push_back(random() % 2);
          mine.push_back(objects[kinds.back()]);
          damaged.push_back(random() % 3 == 0);
          if (damaged.back()) mine.back()[random() % mine.back().size()] ^= std::byte{4};
          memory.emplace_back(*driver_, blank);
        }
        std::vector<DeviceRestoreJob> jobs(mine.size());
        for (size_t i = 0; i < jobs.size(); ++i) {
          jobs[i].object = mine[i];
          jobs[i].target = memory[i].target(cache.geometry);
        }
        (*restorer)->restore(jobs);
        for (size_t i = 0; i < jobs.size(); ++i) {
          if (damaged[i]) {
            EXPECT_EQ(jobs[i].status.ok() ? ErrorCode::internal : jobs[i].status.error().code,
                      ErrorCode::corrupt);
            ++refused;
          } else {
            EXPECT_EQ(message(jobs[i].status), "ok");
            EXPECT_TRUE(memory[i].read() == expected[kinds[i]]);
            ++restored;
          }
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(refused + restored, 480);
  EXPECT_GT(refused, 80);
}

TEST_F(DeviceRestoreTest, WrongCallsAndTooLittleMemory) {
  const Cache cache = testing_codec::random_values({2, 2, 64, 64, DType::f16}, 128, 8);
  const auto object = encode(cache, {0, 128}, {});
  const DeviceMemory memory(*driver_, cache.memory);
  std::vector<DeviceRestoreJob> jobs(3);
  for (DeviceRestoreJob& job : jobs) {
    job.object = object;
    job.target = memory.target(cache.geometry);
  }
  jobs[0].target.bytes -= 1;
  jobs[1].first_token = 1;
  restorer_->restore(jobs);
  EXPECT_EQ(jobs[0].status.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(jobs[1].status.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(message(jobs[2].status), "ok");
  auto small = DeviceRestorer::create({.max_device_bytes = 200 << 10});
  ASSERT_TRUE(small.ok());
  (*small)->restore(std::span(jobs).last(1));
  EXPECT_EQ(jobs[2].status.error().code, ErrorCode::out_of_memory);
}

// Memory for one chunk and a half: each waits for the one before, from several threads, and all
// end.
TEST_F(DeviceRestoreTest, MemoryForOneChunkOnly) {
  const Cache cache = testing_codec::random_values({4, 4, 64, 64, DType::f16}, 128, 8);
  const auto object = encode(cache, {0, 128}, {});
  auto restorer = DeviceRestorer::create({.sessions = 1, .max_device_bytes = 7 << 20});
  ASSERT_TRUE(restorer.ok());
  const DeviceMemory memory(*driver_, cache.memory);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      std::vector<DeviceRestoreJob> jobs(23);
      for (DeviceRestoreJob& job : jobs) {
        job.object = object;
        job.target = memory.target(cache.geometry);
      }
      (*restorer)->restore(jobs);
      for (const DeviceRestoreJob& job : jobs) EXPECT_EQ(message(job.status), "ok");
    });
  }
}

// Device memory after many restores is what it was after the first.
TEST_F(DeviceRestoreTest, NoLeak) {
  const Cache cache = testing_codec::random_values({4, 4, 64, 64, DType::f16}, 128, 8);
  EncodeOptions options;
  options.tier = Tier::int8;
  const auto object = encode(cache, {0, 128}, options);
  const DeviceMemory memory(*driver_, cache.memory);
  size_t free_before = 0, free_after = 0, total = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<DeviceRestoreJob> jobs(50);
    for (DeviceRestoreJob& job : jobs) {
      job.object = object;
      job.target = memory.target(cache.geometry);
    }
    restorer_->restore(jobs);
    for (const DeviceRestoreJob& job : jobs) ASSERT_EQ(message(job.status), "ok");
    const CudaScope scope(*driver_);
    ASSERT_EQ(driver_->extras().mem_get_info(round == 0 ? &free_before : &free_after, &total), 0);
  }
  EXPECT_GE(free_after + (size_t{4} << 20), free_before);
}

}  // namespace
}  // namespace kvcodec
