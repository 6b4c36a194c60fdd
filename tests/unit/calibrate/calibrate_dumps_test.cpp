// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>

#include "kvcodec/calibrate.h"
#include "unit/codec/codec_cases.h"
#include "unit/engines/code_of.h"

namespace kvcodec {
namespace {

using testing_codec::Cache;

constexpr KvShape kShape{.layers = 3, .kv_heads = 2, .key_dim = 8, .value_dim = 8};

class CalibrateDumpsTest : public testing::Test {
 protected:
  CalibrationDumps dumps(size_t count) {
    CalibrationDumps all;
    all.shape = kShape;
    all.rope = *make_rope(Rope::Style::neox, 8, 100);
    all.model = "random";
    all.count = count;
    all.read = [this](size_t index) -> Result<KvSource> {
      cache_ = testing_codec::random_values(kShape, 128, static_cast<uint32_t>(index));
      return cache_.source();
    };
    return all;
  }
  Cache cache_;
};

TEST_F(CalibrateDumpsTest, GiveAProfileThatCodesWhatItWasNotFittedTo) {
  CalibrationOptions options;
  options.group_layers = 2;
  options.threads = 1;
  const auto result = calibrate_dumps(dumps(4), options);
  ASSERT_TRUE(result.ok()) << result.error().message;
  const ProfileFields& fields = result->profile;
  ASSERT_EQ(fields.groups.size(), 4u);
  EXPECT_EQ(fields.groups[0].layers + fields.groups[1].layers, 3u);
  EXPECT_GT(fields.tiers[0].bits_per_value, fields.tiers[2].bits_per_value);
  EXPECT_GT(fields.tiers[2].bits_per_value, 0);
  EXPECT_EQ(fields.tiers[0].kl, 0);
  for (const ProfileGroup& group : fields.groups) {
    EXPECT_GT(group.expected_noise[0], 0);
    EXPECT_LT(group.expected_noise[0], group.expected_noise[2]);
  }

  const auto bytes = serialise_profile(fields);
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  const auto profile = Profile::parse(*bytes);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  const Cache other = testing_codec::random_values(kShape, 128, 99);
  EncodeOptions encode;
  encode.tier = Tier::high;
  encode.profile = &*profile;
  const auto object = encode_chunk(other.source(), {0, 128}, {}, encode);
  ASSERT_TRUE(object.ok()) << object.error().message;
  Cache back = testing_codec::empty_cache(kShape, 128);
  DecodeOptions decode;
  decode.profile = &*profile;
  const Status decoded = decode_chunk(*object, back.target(), 0, decode);
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
}

TEST_F(CalibrateDumpsTest, AreTheSameProfileEveryTime) {
  CalibrationOptions options;
  options.threads = 1;
  const auto a = calibrate_dumps(dumps(3), options), b = calibrate_dumps(dumps(3), options);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(*serialise_profile(a->profile), *serialise_profile(b->profile));
}

TEST_F(CalibrateDumpsTest, TooFewTokensAreRefusedWithTheNumberNeeded) {
  CalibrationOptions options;
  options.sink_tokens = 31;
  CalibrationDumps few = dumps(2);
  few.read = [this](size_t index) -> Result<KvSource> {
    cache_ = testing_codec::random_values(kShape, 40, static_cast<uint32_t>(index));
    return cache_.source();
  };
  const auto result = calibrate_dumps(few, options);
  ASSERT_EQ(code_of(result), ErrorCode::invalid_argument);
  EXPECT_NE(result.error().message.find("9 tokens"), std::string::npos) << result.error().message;
  EXPECT_NE(result.error().message.find("48 are needed"), std::string::npos);
  EXPECT_EQ(code_of(calibrate_dumps(dumps(1), {})), ErrorCode::invalid_argument);
}

TEST_F(CalibrateDumpsTest, OfAnotherShapeOrNotFiniteAreRefused) {
  CalibrationDumps mixed = dumps(3);
  mixed.read = [this](size_t index) -> Result<KvSource> {
    KvShape shape = kShape;
    shape.kv_heads += index == 1;
    cache_ = testing_codec::random_values(shape, 128, 1);
    return cache_.source();
  };
  EXPECT_EQ(code_of(calibrate_dumps(mixed, {})), ErrorCode::invalid_argument);
  CalibrationDumps broken = dumps(3);
  broken.read = [this](size_t) -> Result<KvSource> {
    cache_ = testing_codec::random_values(kShape, 128, 1);
    constexpr uint16_t kInfinity = 0x7c00;  // f16
    std::memcpy(&cache_.memory[cache_.geometry.element_offset(KvKind::value, 1, 20, 0, 3)],
                &kInfinity, sizeof kInfinity);
    return cache_.source();
  };
  const auto result = calibrate_dumps(broken, {});
  ASSERT_EQ(code_of(result), ErrorCode::invalid_argument);
  EXPECT_NE(result.error().message.find("V of layer 1, token 20"), std::string::npos)
      << result.error().message;
}

}  // namespace
}  // namespace kvcodec
