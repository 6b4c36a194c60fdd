// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "fetch_fixture.h"
#include "kvcodec/profile.h"
#include "transform/float_convert.h"
#include "unit/profile/test_profiles.h"

namespace kvcodec {
namespace {

class CalibratedFetch : public FetchFixture {
 protected:
  void SetUp() override {
    FetchFixture::SetUp();
    profile_.emplace(testing_profile::random_profile(geometry_.shape, {}, {2, 1, false}));
    other_.emplace(testing_profile::random_profile(geometry_.shape, {}, {2, 1, false}, 2));
  }

  PublishReport publish_tier(Tier tier, const Profile& profile) {
    PublishOptions options = publish_options(tier);
    options.encode.profile = &profile;
    const auto report = publish_prefix(*store_, namespace_, tokens_, source(), options);
    EXPECT_TRUE(report.ok()) << report.error().message;
    return report.ok() ? *report : PublishReport{};
  }

  FetchOptions options_for(Tier tier, const Profile& profile) const {
    FetchOptions options = fetch_options();
    options.rendition = rendition_name(tier, &profile);
    options.profile = &profile;
    return options;
  }

  // Largest difference of the first `tokens` tokens from the cache.
  double distance(const Target& target, uint32_t tokens) const {
    double most = 0;
    for (KvKind kind : kKvKinds)
      for (uint32_t layer = 0; layer < 2; ++layer)
        for (uint32_t token = 0; token < tokens; ++token)
          for (uint32_t i = 0; i < 16; ++i) {
            const size_t at = geometry_.element_offset(kind, layer, token, i / 8, i % 8);
            float want = 0, have = 0;
            transform::to_floats(DType::f16, memory_.data() + at, 1, &want);
            transform::to_floats(DType::f16, target.memory.data() + at, 1, &have);
            most = std::max(most, double{std::abs(want - have)});
          }
    return most;
  }

  std::optional<Profile> profile_, other_;
};

TEST_F(CalibratedFetch, PublishesAndRestoresARendition) {
  for (Tier tier : kCalibratedTiers) {
    const PublishReport first = publish_tier(tier, *profile_);
    EXPECT_EQ(first.written, 5u);
    EXPECT_EQ(first.finer, 0u);
    EXPECT_EQ(publish_tier(tier, *profile_).written, 0u) << "already there";
    const FetchOptions options = options_for(tier, *profile_);
    EXPECT_EQ(*match_prefix(*store_, namespace_, tokens_, options.rendition, kTestChunk),
              5 * kTestChunk);
    Target target = make_target();
    const auto report = fetch_prefix(*store_, namespace_, tokens_, target.target(), options);
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_FALSE(report->stopped_by.has_value()) << report->stopped_by->message;
    EXPECT_EQ(report->tokens_restored, 5 * kTestChunk);
    EXPECT_LT(distance(target, 5 * kTestChunk), 4 * profile_->tier(tier).step);
    EXPECT_GT(distance(target, 5 * kTestChunk), 0);
  }
  // All tiers and profiles lie beside each other in one namespace.
  publish_tier(Tier::small, *other_);
  EXPECT_EQ(store_->list(to_hex(namespace_))->size(), 20u);
}

TEST_F(CalibratedFetch, ARenditionNeedsItsOwnProfile) {
  publish_tier(Tier::balanced, *profile_);
  Target target = make_target();
  FetchOptions options = options_for(Tier::balanced, *profile_);
  for (const Profile* wrong : std::initializer_list<const Profile*>{nullptr, &*other_}) {
    options.profile = wrong;
    const auto report = fetch_prefix(*store_, namespace_, tokens_, target.target(), options);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(report.error().message.find(options.rendition), std::string::npos);
  }
  PublishOptions publish = publish_options(Tier::small);
  const auto refused = publish_prefix(*store_, namespace_, tokens_, source(), publish);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  expect_restored(target, 0);
}

// Nothing below the floor is served: neither a rendition, nor a coarser chunk under a finer name.
TEST_F(CalibratedFetch, TheFloorHolds) {
  publish_tier(Tier::small, *profile_);
  publish_tier(Tier::high, *profile_);
  Target target = make_target();
  FetchOptions options = options_for(Tier::small, *profile_);
  options.lowest_tier = Tier::balanced;
  const auto refused = fetch_prefix(*store_, namespace_, tokens_, target.target(), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  options.lowest_tier = Tier::exact;
  options.rendition = "int8";
  EXPECT_FALSE(fetch_prefix(*store_, namespace_, tokens_, target.target(), options).ok());

  options = options_for(Tier::high, *profile_);
  options.lowest_tier = Tier::high;
  const std::string small = name(2, rendition_name(Tier::small, &*profile_).c_str());
  const std::string high = name(2, options.rendition.c_str());
  ASSERT_TRUE(store_->put(high, *get_object(*store_, small, UINT64_MAX)).ok());
  const auto report = fetch_prefix(*store_, namespace_, tokens_, target.target(), options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->tokens_restored, 2 * kTestChunk);
  ASSERT_TRUE(report->stopped_by.has_value());
  EXPECT_EQ(report->stopped_by->code, ErrorCode::corrupt);
  // Publishing again mends it: what is there is not of the tier.
  EXPECT_EQ(publish_tier(Tier::high, *profile_).written, 1u);
}

// Chunks that were coded finer lie under the name that was asked for, and are restored from it.
TEST_F(CalibratedFetch, FinerChunksAreServed) {
  ProfileFields fields = profile_->fields();
  for (ProfileGroup& group : fields.groups) group.expected_noise = {1, 1, 1e-9f};
  const Profile strict = *Profile::parse(*serialise_profile(fields));
  const PublishReport published = publish_tier(Tier::small, strict);
  EXPECT_EQ(published.finer, 5u);
  const FetchOptions options = options_for(Tier::small, strict);
  EXPECT_EQ(
      read_chunk_info(*get_object(*store_, name(0, options.rendition.c_str()), UINT64_MAX))->tier,
      Tier::int8);
  Target target = make_target();
  const auto report = fetch_prefix(*store_, namespace_, tokens_, target.target(), options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->tokens_restored, 5 * kTestChunk);
}

}  // namespace
}  // namespace kvcodec
