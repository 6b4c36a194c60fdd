// SPDX-License-Identifier: Apache-2.0
#include "kvcodec/profile.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "unit/profile/test_profiles.h"

namespace kvcodec {
namespace {

using testing_profile::ProfileMaker;
using testing_profile::random_profile;

const KvShape kShape = {3, 2, 8, 6, DType::f16};
const Rope kRope = *make_rope(Rope::Style::neox, 6, 10000.0);

TEST(Profile, FieldsSurviveTheirFile) {
  ProfileFields fields = ProfileMaker(kShape, kRope, 5).make({2, 0.7, true});
  fields.weights.bytes.fill(std::byte{7});
  fields.calibration = R"({"texts":3})";
  fields.groups[1].expected_noise = {0.1f, 0.2f, 0.3f};
  const auto bytes = serialise_profile(fields);
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  const auto profile = Profile::parse(*bytes);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  const ProfileFields& found = profile->fields();
  EXPECT_EQ(found.model, fields.model);
  EXPECT_EQ(found.weights, fields.weights);
  EXPECT_EQ(found.calibration, fields.calibration);
  EXPECT_TRUE(profile->check_shape(kShape).ok());
  EXPECT_EQ(found.rope, kRope);
  EXPECT_EQ(profile->digest(), sha256(*bytes));
  for (Tier tier : kCalibratedTiers) {
    EXPECT_EQ(profile->tier(tier).step, fields.tiers[tier_index(tier)].step);
    EXPECT_EQ(profile->tier(tier).kl, fields.tiers[tier_index(tier)].kl);
  }
  ASSERT_EQ(found.groups.size(), 4u);  // layers 0 and 1, and 2, of both kinds
  for (size_t g = 0; g < 4; ++g) {
    const ProfileGroup &want = fields.groups[g], &have = found.groups[g];
    EXPECT_EQ(have.kind, want.kind);
    EXPECT_EQ(have.first_layer, want.first_layer);
    EXPECT_EQ(have.layers, want.layers);
    EXPECT_EQ(have.components, want.components);
    EXPECT_EQ(have.mean, want.mean);
    EXPECT_EQ(have.metric, want.metric);
    EXPECT_EQ(have.variance, want.variance);
    EXPECT_EQ(have.expected_noise, want.expected_noise);
    ASSERT_EQ(have.basis.size(), want.basis.size());
    for (size_t i = 0; i < want.basis.size(); ++i)
      EXPECT_NEAR(have.basis[i], want.basis[i], std::abs(want.basis[i]) * 0x1p-11 + 0x1p-24);
  }
}

TEST(Profile, TheFileIsDeterministic) {
  const ProfileFields fields = ProfileMaker(kShape, kRope, 5).make({1, 1, false});
  EXPECT_EQ(*serialise_profile(fields), *serialise_profile(fields));
}

TEST(Profile, LoadsFromAPath) {
  const std::string path = ::testing::TempDir() + "kvcodec_profile_test.safetensors";
  const auto bytes = *serialise_profile(ProfileMaker(kShape, kRope, 5).make({3, 1, false}));
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const auto profile = Profile::load(path);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->digest(), sha256(bytes));
  const auto too_large = Profile::load(path, {bytes.size() - 1});
  ASSERT_FALSE(too_large.ok());
  EXPECT_EQ(too_large.error().code, ErrorCode::corrupt);
  std::filesystem::remove(path);
  const auto missing = Profile::load(path);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_NE(missing.error().message.find(path), std::string::npos);
}

TEST(Profile, NamesTheFieldOfAnotherModel) {
  const Profile profile = random_profile(kShape, kRope, {3, 1, false});
  for (const auto& [shape, field] : {std::pair(KvShape{4, 2, 8, 6, DType::f16}, "layers"),
                                     {{3, 1, 8, 6, DType::f16}, "kv_heads"},
                                     {{3, 2, 9, 6, DType::f16}, "key_dim"},
                                     {{3, 2, 8, 0, DType::f16}, "value_dim"}}) {
    const Status status = profile.check_shape(shape);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(status.error().message.find(field), std::string::npos) << status.error().message;
  }
  EXPECT_TRUE(profile.check_shape({3, 2, 8, 6, DType::f32}).ok()) << "the dtype may be any";
}

TEST(Profile, TheCoarsestTierWithinABudget) {
  const Profile profile = random_profile(kShape, kRope, {3, 1, false});  // KL .001, .01, .05
  EXPECT_EQ(*profile.tier_within(0.06), Tier::small);
  EXPECT_EQ(*profile.tier_within(0.05), Tier::small);
  EXPECT_EQ(*profile.tier_within(0.02), Tier::balanced);
  EXPECT_EQ(*profile.tier_within(0.001), Tier::high);
  EXPECT_EQ(profile.tier_within(0.0005).error().code, ErrorCode::invalid_argument);
  EXPECT_FALSE(Profile::identity(kShape, kRope)->tier_within(1).ok()) << "it knows no KL";
}

TEST(Profile, IdentityIsTheSameForOneModel) {
  const auto one = Profile::identity(kShape, kRope), two = Profile::identity(kShape, kRope);
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_TRUE(one->is_identity());
  EXPECT_TRUE(one->groups().empty());
  EXPECT_EQ(one->digest(), two->digest());
  EXPECT_NE(one->digest(), Profile::identity(kShape, {})->digest());
  EXPECT_FALSE(Profile::identity({0, 2, 8, 8, DType::f16}, {}).ok());
  Rope odd = kRope;
  odd.phase_steps.pop_back();
  EXPECT_FALSE(Profile::identity(kShape, odd).ok());
}

TEST(Rendition, NamesGoBothWays) {
  const Profile profile = random_profile(kShape, kRope, {3, 1, false});
  const std::string digits = to_hex(profile.digest()).substr(0, 16);
  EXPECT_EQ(rendition_name(Tier::exact, nullptr), "exact");
  EXPECT_EQ(rendition_name(Tier::int8, &profile), "int8");
  for (Tier tier : kCalibratedTiers) {
    const std::string name = rendition_name(tier, &profile);
    EXPECT_EQ(name, std::string(tier_name(tier)) + "-" + digits);
    const auto parsed = parse_rendition(name);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(parsed->tier, tier);
    EXPECT_EQ(parsed->profile, digits);
  }
  EXPECT_EQ(parse_rendition("int8")->tier, Tier::int8);
  EXPECT_EQ(parse_rendition("int8")->picture_height, 0u);
  for (Tier tier : {Tier::exact, Tier::int8, Tier::high, Tier::small}) {
    const std::string name = rendition_name(tier, &profile, 512);
    EXPECT_EQ(name, rendition_name(tier, &profile) + "-h512");
    const auto parsed = parse_rendition(name);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(parsed->tier, tier);
    EXPECT_EQ(parsed->picture_height, 512u);
    EXPECT_EQ(parsed->profile, is_calibrated(tier) ? digits : "");
  }
}

TEST(Rendition, RefusesOtherNames) {
  for (const char* name : {"",
                           "-",
                           "balanced",
                           "balanced-",
                           "balanced-0123456789abcde",
                           "balanced-0123456789abcdef0",
                           "balanced-0123456789ABCDEF",
                           "int8-0123456789abcdef",
                           "exact-",
                           "huge-0123456789abcdef",
                           "exact-h",
                           "exact-h0",
                           "exact-h0512",
                           "exact-h100",
                           "exact-h513",
                           "exact-h9000",
                           "exact-h512-h512",
                           "-h512",
                           "exact-h512x",
                           "exact-h99999999999",
                           "balanced-h512"}) {
    const auto parsed = parse_rendition(name);
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.error().code, ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace kvcodec
