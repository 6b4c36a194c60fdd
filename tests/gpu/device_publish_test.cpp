// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <thread>

#include "gpu/device_memory.h"
#include "gpu/mixing_profile.h"
#include "kvcodec/device.h"
#include "unit/codec/codec_cases.h"
#include "unit/layout/kv_geometries.h"

namespace kvcodec {
namespace {

using testing_codec::Cache;

std::string message(const auto& result) { return result.ok() ? "ok" : result.error().message; }

// What is published from device memory must be, byte for byte, what encode_chunk publishes from
// host memory, and so must be the errors.
class DevicePublishTest : public testing::Test {
 protected:
  void SetUp() override {
    auto publisher = DevicePublisher::create({.unproven_calibrated = true});
    if (!publisher.ok()) {
      ASSERT_EQ(publisher.error().code, ErrorCode::unsupported) << publisher.error().message;
      GTEST_SKIP() << publisher.error().message;
    }
    publisher_ = *std::move(publisher);
    driver_ = *CudaDriver::open(0);
  }

  void expect_same(const Cache& cache, TokenRange range, const EncodeOptions& options,
                   DevicePublisher* publisher = nullptr) {
    if (publisher == nullptr) publisher = publisher_.get();
    const DeviceMemory memory(*driver_, cache.memory);
    const ChunkId id = testing_codec::some_id(range.first);
    const auto expected = encode_chunk(cache.source(), range, id, options);
    const auto found = publisher->encode(
        {memory.target(cache.geometry).memory, cache.memory.size(), &cache.geometry}, range, id,
        options);
    ASSERT_EQ(message(found), message(expected));
    if (!expected.ok()) return;
    ASSERT_EQ(found->size(), expected->size());
    const auto difference = std::mismatch(expected->begin(), expected->end(), found->begin());
    ASSERT_TRUE(difference.first == expected->end())
        << "first wrong byte " << difference.first - expected->begin() << " of "
        << expected->size();
  }

  std::unique_ptr<DevicePublisher> publisher_;
  std::shared_ptr<const CudaDriver> driver_;
};

TEST(DevicePublisherCreate, SaysWhatIsMissing) {
  const auto publisher = DevicePublisher::create();
  if (publisher.ok()) return;
  EXPECT_EQ(publisher.error().code, ErrorCode::unsupported);
  EXPECT_FALSE(publisher.error().message.empty());
}

TEST_F(DevicePublishTest, EveryGeometryAndTier) {
  for (const auto& [name, geometry, bytes] : testing_kv::many_geometries(70)) {
    const Cache from = testing_codec::random_values(geometry.shape, 70, 5);
    Cache cache = testing_codec::empty_cache(geometry, bytes);
    testing_codec::copy_elements(from, cache);
    for (const Tier tier : {Tier::exact, Tier::int8}) {
      SCOPED_TRACE(name + " " + tier_name(tier));
      EncodeOptions options;
      options.tier = tier;
      options.max_picture_height = 144;
      if (geometry.shape.key_dim % 2 == 0)
        options.rope = *make_rope(Rope::Style::neox, geometry.shape.key_dim, 10000);
      expect_same(cache, {0, 50}, options);
      expect_same(cache, {20, 50}, options);
      expect_same(cache, {69, 1}, options);
    }
  }
}

TEST_F(DevicePublishTest, SmallExact) {
  expect_same(testing_codec::random_values({2, 2, 64, 64, DType::f16}, 64, 4), {0, 64}, {});
}

TEST_F(DevicePublishTest, SmallInt8) {
  EncodeOptions options;
  options.tier = Tier::int8;
  options.rope = *make_rope(Rope::Style::interleaved, 64, 10000);
  expect_same(testing_codec::random_values({2, 2, 64, 64, DType::bf16}, 64, 4), {0, 64}, options);
}

TEST_F(DevicePublishTest, SmallCalibrated) {
  const KvShape shape = {2, 2, 32, 32, DType::f16};
  const Rope rope = *make_rope(Rope::Style::neox, shape.key_dim, 10000);
  const Profile profile = mixing_profile(shape, rope, 2, true);
  EncodeOptions options;
  options.tier = Tier::balanced;
  options.profile = &profile;
  expect_same(testing_codec::random_values(shape, 64, 4), {0, 64}, options);
}

TEST_F(DevicePublishTest, RealKv) {
  const Cache cache = testing_codec::real_cache();
  const uint32_t tokens = cache.geometry.tokens;
  for (const Tier tier : {Tier::exact, Tier::int8}) {
    EncodeOptions options;
    options.tier = tier;
    options.rope = testing_codec::real_rope();
    expect_same(cache, {0, tokens}, options);
    expect_same(cache, {5, tokens - 5}, options);
  }
}

TEST_F(DevicePublishTest, EveryBitPattern) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32})
    expect_same(testing_codec::random_bits({2, 3, 64, 64, dtype}, 67, 11), {0, 67}, {});
}

TEST_F(DevicePublishTest, ModelShapes) {
  for (const KvShape& shape : {KvShape{4, 8, 128, 128, DType::bf16},
                               {2, 32, 128, 128, DType::f16},
                               {2, 1, 576, 0, DType::bf16},
                               {3, 2, 256, 256, DType::bf16}}) {
    SCOPED_TRACE(testing_codec::fmt_shape(shape, 256));
    const Cache cache = testing_codec::random_values(shape, 256, 3);
    for (const Tier tier : {Tier::exact, Tier::int8}) {
      EncodeOptions options;
      options.tier = tier;
      options.rope = *make_rope(Rope::Style::neox, 64, 500000);
      expect_same(cache, {0, 256}, options);
    }
  }
}

// More codes that samples cannot hold than there is room for at first.
TEST_F(DevicePublishTest, ManyEscapes) {
  Cache cache = testing_codec::random_values({2, 2, 64, 64, DType::f16}, 192, 4);
  std::mt19937 random(1);
  const auto below = [&random](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int i = 0; i < 9000; ++i)
    cache.set(kKvKinds[below(2)], 0, below(192), below(2), below(64), i % 2 ? 30 : -40);
  cache.set(KvKind::key, 0, 9, 1, 5, 60000);
  EncodeOptions options;
  options.tier = Tier::int8;
  options.rope = *make_rope(Rope::Style::interleaved, 64, 10000);
  expect_same(cache, {0, 192}, options);
}

TEST_F(DevicePublishTest, ConstantsAndSinks) {
  for (const float value : {0.0f, -3.25f}) {
    Cache cache = testing_codec::empty_cache(KvShape{2, 2, 32, 32, DType::bf16}, 64);
    testing_codec::for_each_element(
        cache.geometry.shape, {0, 64},
        [&](KvKind kind, uint32_t layer, uint32_t token, uint32_t head, uint32_t dim) {
          cache.set(kind, layer, token, head, dim, value);
        });
    for (const uint32_t sinks : {0u, 3u, 64u, 100u}) {
      EncodeOptions options;
      options.tier = Tier::int8;
      options.sink_tokens = sinks;
      expect_same(cache, {0, 64}, options);
    }
  }
}

TEST_F(DevicePublishTest, NamesWhatIsNotFinite) {
  const KvShape shape = {3, 2, 32, 32, DType::f16};
  const Rope rope = *make_rope(Rope::Style::neox, shape.key_dim, 10000);
  const Profile profile = mixing_profile(shape, rope, 2);
  for (const Tier tier : {Tier::int8, Tier::balanced}) {
    Cache cache = testing_codec::random_values(shape, 100, 6);
    cache.set(KvKind::value, 1, 88, 1, 7, std::numeric_limits<float>::infinity());
    cache.set(KvKind::value, 2, 80, 1, 3, std::numeric_limits<float>::quiet_NaN());
    EncodeOptions options;
    options.tier = tier;
    options.rope = rope;
    options.profile = &profile;
    expect_same(cache, {0, 100}, options);
    expect_same(cache, {0, 80}, options);
  }
}

TEST_F(DevicePublishTest, CalibratedTiers) {
  for (const KvShape& shape : {KvShape{5, 2, 64, 64, DType::bf16}, {3, 3, 32, 48, DType::f16}}) {
    for (const bool block_metric : {false, true}) {
      const Rope rope = *make_rope(Rope::Style::neox, shape.key_dim, 10000);
      const Profile profile = mixing_profile(shape, rope, 2, block_metric);
      const Cache cache = testing_codec::random_values(shape, 200, 6);
      for (const Tier tier : kCalibratedTiers) {
        SCOPED_TRACE(std::string(tier_name(tier)) + (block_metric ? " block" : " diagonal"));
        EncodeOptions options;
        options.tier = tier;
        options.profile = &profile;
        expect_same(cache, {0, 200}, options);
        expect_same(cache, {67, 65}, options);
        options.sink_tokens = 70;
        expect_same(cache, {0, 200}, options);
      }
    }
  }
}

// Chunks that are too far off at their tier are coded at a finer one, and at int8 in the end.
TEST_F(DevicePublishTest, FinerTiers) {
  const KvShape shape = {4, 2, 64, 64, DType::bf16};
  const Rope rope = *make_rope(Rope::Style::neox, shape.key_dim, 10000);
  const Cache cache = testing_codec::random_values(shape, 128, 6);
  std::vector<Tier> tiers;
  for (const float noise : {1.0f, 0.02f, 0.0005f, 1e-7f}) {
    const Profile profile = mixing_profile(shape, rope, 2, false, noise);
    EncodeOptions options;
    options.tier = Tier::small;
    options.profile = &profile;
    SCOPED_TRACE(noise);
    expect_same(cache, {0, 128}, options);
    const auto object = encode_chunk(cache.source(), {0, 128}, testing_codec::some_id(0), options);
    ASSERT_TRUE(object.ok());
    tiers.push_back(read_chunk_info(*object)->tier);
  }
  EXPECT_EQ(tiers.front(), Tier::small);
  EXPECT_EQ(tiers.back(), Tier::int8);
}

TEST_F(DevicePublishTest, IdentityProfile) {
  const KvShape shape = {3, 2, 64, 64, DType::f16};
  const Rope rope = *make_rope(Rope::Style::neox, shape.key_dim, 10000);
  const auto profile = Profile::identity(shape, rope);
  ASSERT_TRUE(profile.ok()) << message(profile);
  const Cache cache = testing_codec::random_values(shape, 200, 6);
  for (const Tier tier : kCalibratedTiers) {
    SCOPED_TRACE(tier_name(tier));
    EncodeOptions options;
    options.tier = tier;
    options.profile = &*profile;
    expect_same(cache, {0, 200}, options);
    expect_same(cache, {3, 131}, options);
  }
}

TEST_F(DevicePublishTest, EncodedOnTheDevice) {
  const auto publisher = DevicePublisher::create({.encode_on_device = true});
  ASSERT_TRUE(publisher.ok()) << message(publisher);
  const Cache cache = testing_codec::random_values({6, 4, 64, 64, DType::bf16}, 256, 3);
  for (const Tier tier : {Tier::exact, Tier::int8}) {
    EncodeOptions options;
    options.tier = tier;
    options.rope = *make_rope(Rope::Style::neox, 64, 10000);
    expect_same(cache, {0, 256}, options, publisher->get());
  }
}

TEST_F(DevicePublishTest, FromSeveralThreadsWithLittleMemory) {
  const auto publisher = DevicePublisher::create({.max_device_bytes = 8 << 20});
  ASSERT_TRUE(publisher.ok()) << message(publisher);
  std::vector<std::jthread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Cache cache = testing_codec::random_values({4, 4, 64, 64, DType::f16}, 128, t);
      for (int round = 0; round < 6; ++round) {
        EncodeOptions options;
        options.threads = 1;
        options.tier = round % 2 == 0 ? Tier::exact : Tier::int8;
        expect_same(cache, {0, 128}, options, publisher->get());
      }
    });
  }
}

TEST_F(DevicePublishTest, CalibratedTiersAreRefusedUnlessAskedFor) {
  const KvShape shape = {4, 2, 64, 64, DType::bf16};
  const Profile profile =
      mixing_profile(shape, *make_rope(Rope::Style::neox, shape.key_dim, 10000), 2, false, 1);
  const Cache cache = testing_codec::random_values(shape, 128, 6);
  const DeviceMemory memory(*driver_, cache.memory);
  const auto publisher = DevicePublisher::create();
  ASSERT_TRUE(publisher.ok()) << message(publisher);
  EncodeOptions options;
  options.tier = Tier::balanced;
  options.profile = &profile;
  const auto refused =
      (*publisher)
          ->encode({memory.target(cache.geometry).memory, cache.memory.size(), &cache.geometry},
                   {0, 128}, testing_codec::some_id(0), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
}

TEST_F(DevicePublishTest, WrongCallsAndTooLittleMemory) {
  const Cache cache = testing_codec::random_values({2, 2, 64, 64, DType::f16}, 64, 4);
  expect_same(cache, {60, 10}, {});
  EncodeOptions options;
  options.tier = Tier::balanced;
  expect_same(cache, {0, 64}, options);
  const auto publisher = DevicePublisher::create({.max_device_bytes = 1000});
  ASSERT_TRUE(publisher.ok()) << message(publisher);
  const DeviceMemory memory(*driver_, cache.memory);
  const auto refused =
      (*publisher)
          ->encode({memory.target(cache.geometry).memory, cache.memory.size(), &cache.geometry},
                   {0, 64}, testing_codec::some_id(0), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
}

}  // namespace
}  // namespace kvcodec
