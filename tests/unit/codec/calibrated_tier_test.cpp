// SPDX-License-Identifier: Apache-2.0
#include "codec/calibrated_tier.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "codec/chunk_decoder.h"
#include "format/header.h"
#include "unit/codec/codec_cases.h"
#include "unit/layout/kv_geometries.h"
#include "unit/profile/test_profiles.h"

namespace kvcodec {
namespace {

using testing_codec::Cache;
using testing_codec::empty_cache;
using testing_codec::random_values;
using testing_codec::some_id;
using testing_profile::GroupRule;
using testing_profile::random_profile;

EncodeOptions options_of(const Profile& profile, Tier tier = Tier::balanced) {
  EncodeOptions options;
  options.tier = tier;
  options.profile = &profile;
  return options;
}

std::vector<std::byte> encode(const Cache& cache, uint32_t first_token,
                              const EncodeOptions& options) {
  auto object =
      encode_chunk(cache.source(), {0, cache.geometry.tokens}, some_id(first_token), options);
  EXPECT_TRUE(object.ok()) << object.error().message;
  return object.ok() ? *object : std::vector<std::byte>{};
}

Cache decode(const std::vector<std::byte>& object, const KvShape& shape, uint32_t tokens,
             const Profile& profile, std::optional<uint32_t> position = {}) {
  Cache out = empty_cache(shape, tokens);
  DecodeOptions options;
  options.profile = &profile;
  options.position = position;
  const Status status = decode_chunk(object, out.target(), 0, options);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return out;
}

// Root mean square of what differs, over tokens from `first` on.
double rms_difference(const Cache& a, const Cache& b, uint32_t first = 0) {
  double sum = 0;
  size_t n = 0;
  testing_codec::for_each_element(
      a.geometry.shape, {first, a.geometry.tokens - first},
      [&](KvKind kind, uint32_t layer, uint32_t token, uint32_t head, uint32_t dim) {
        sum += std::pow(
            a.value(kind, layer, token, head, dim) - b.value(kind, layer, token, head, dim), 2);
        ++n;
      });
  return std::sqrt(sum / static_cast<double>(n));
}

struct ShapeCase {
  KvShape shape;
  Rope rope;
  GroupRule rule;
  uint32_t tokens;
};

std::vector<ShapeCase> shape_cases() {
  const Rope neox = *make_rope(Rope::Style::neox, 8, 10000.0);
  const Rope interleaved = *make_rope(Rope::Style::interleaved, 16, 500000.0);
  return {
      {{3, 2, 16, 16, DType::f16}, interleaved, {2, 1, false}, 70},  // GQA, a last small group
      {{2, 4, 16, 16, DType::bf16}, interleaved, {1, 1, true}, 64},  // MHA, blocks
      {{2, 1, 12, 20, DType::f32}, neox, {2, 1, true}, 65},          // value_dim != key_dim
      {{3, 1, 24, 0, DType::f16}, neox, {3, 1, false}, 40},          // no values
      {{2, 3, 8, 8, DType::f32}, {}, {1, 1, false}, 130},            // no rope
      {{1, 1, 1, 1, DType::f32}, {}, {1, 1, false}, 1},              // one element
      {{2, 2, 10, 6, DType::bf16}, neox, {2, 0.5, false}, 33},       // a truncated basis
  };
}

// With a whole basis the error is what steps leave; it shrinks with them.
TEST(CalibratedTier, RestoresEveryShapeWithinItsSteps) {
  for (const ShapeCase& c : shape_cases()) {
    SCOPED_TRACE(testing_codec::fmt_shape(c.shape, c.tokens));
    const Profile profile = random_profile(c.shape, c.rope, c.rule);
    const Cache cache = random_values(c.shape, c.tokens, 7);
    double last = 0;
    for (Tier tier : kCalibratedTiers) {
      EncodeOptions options = options_of(profile, tier);
      options.noise_factor = 0;  // random bases need many escapes
      const auto object = encode(cache, 100, options);
      const auto info = read_chunk_info(object);
      ASSERT_TRUE(info.ok()) << info.error().message;
      EXPECT_EQ(info->tier, tier);
      EXPECT_EQ(info->format_version, 2u);
      EXPECT_EQ(info->profile, profile.digest());
      const double rms = rms_difference(cache, decode(object, c.shape, c.tokens, profile));
      if (c.rule.share == 1) {
        const double coarsest_weight = 0.1;  // of the metrics: noise is step / sqrt(weight)
        EXPECT_LE(rms, profile.tier(tier).step / std::sqrt(coarsest_weight) + 0.02);
        EXPECT_GE(rms * 1.05 + 1e-3, last) << "a coarser tier keeps less";
      }
      last = rms;
      DecodeOptions verify;
      verify.profile = &profile;
      EXPECT_TRUE(verify_chunk(object, verify).ok());
      EXPECT_TRUE(verify_chunk(object).ok()) << "the object itself is checked without its profile";
    }
  }
}

TEST(CalibratedTier, BytesDependOnNeitherThreadsNorMemoryLayout) {
  const ShapeCase c = shape_cases()[0];
  const Profile profile = random_profile(c.shape, c.rope, c.rule);
  const Cache cache = random_values(c.shape, c.tokens, 8);
  EncodeOptions options = options_of(profile);
  options.threads = 1;
  const auto object = encode(cache, 2, options);
  options.threads = 5;
  EXPECT_TRUE(encode(cache, 2, options) == object);
  for (const auto& layout : testing_kv::vllm_geometries(c.shape, c.tokens)) {
    SCOPED_TRACE(layout.name);
    Cache other = empty_cache(layout.geometry, layout.bytes);
    testing_codec::copy_elements(cache, other);
    EXPECT_TRUE(encode(other, 2, options) == object);
    Cache restored = empty_cache(layout.geometry, layout.bytes);
    DecodeOptions decoding;
    decoding.profile = &profile;
    ASSERT_TRUE(decode_chunk(object, restored.target(), 0, decoding).ok());
    EXPECT_EQ(rms_difference(restored, decode(object, c.shape, c.tokens, profile)), 0);
  }
}

TEST(CalibratedTier, SinksAreExact) {
  const ShapeCase c = shape_cases()[0];
  const Profile profile = random_profile(c.shape, c.rope, c.rule);
  for (uint32_t first_token : {0u, 1u, 3u, 4u}) {
    Cache cache = random_values(c.shape, c.tokens, 9);
    if (first_token < 4) {
      cache.set(KvKind::key, 0, 0, 0, 0, std::numeric_limits<float>::infinity());
      cache.set(KvKind::value, 1, 0, 1, 2, std::numeric_limits<float>::quiet_NaN());
    }
    const auto object = encode(cache, first_token, options_of(profile));
    const uint32_t sinks = first_token < 4 ? 4 - first_token : 0;
    EXPECT_EQ(read_chunk_info(object)->sink_tokens, sinks);
    const Cache restored = decode(object, c.shape, c.tokens, profile);
    testing_codec::for_each_element(
        c.shape, {0, sinks},
        [&](KvKind kind, uint32_t layer, uint32_t token, uint32_t head, uint32_t dim) {
          EXPECT_EQ(restored.bits(kind, layer, token, head, dim),
                    cache.bits(kind, layer, token, head, dim));
        });
    EXPECT_LT(rms_difference(cache, restored, sinks), 1);
  }
}

TEST(CalibratedTier, NumbersThatAreNotFiniteAreRefusedByName) {
  const ShapeCase c = shape_cases()[0];
  const Profile profile = random_profile(c.shape, c.rope, c.rule);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()}) {
    Cache cache = random_values(c.shape, c.tokens, 9);
    // Token 66 is in the second panel; set() saturates infinities of f16.
    const uint16_t bits = std::isnan(bad) ? 0x7e00 : bad > 0 ? 0x7c00 : 0xfc00;
    std::memcpy(cache.memory.data() + cache.geometry.element_offset(KvKind::value, 2, 66, 1, 5),
                &bits, 2);
    const auto object =
        encode_chunk(cache.source(), {0, c.tokens}, some_id(50), options_of(profile));
    ASSERT_FALSE(object.ok());
    EXPECT_EQ(object.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(object.error().message.find("V of layer 2, token 66, head 1, dim 5"),
              std::string::npos)
        << object.error().message;
  }
}

TEST(CalibratedTier, ConstantChannelsAndOneToken) {
  const ShapeCase c = shape_cases()[0];
  const Profile profile = random_profile(c.shape, c.rope, c.rule);
  for (uint32_t tokens : {1u, 40u}) {
    Cache cache = empty_cache(c.shape, tokens);  // zeros
    const auto object = encode(cache, 10, options_of(profile, Tier::high));
    EXPECT_LT(rms_difference(cache, decode(object, c.shape, tokens, profile)), 0.1);
  }
}

// A cache of the means: every component is zero, no row is live, and there is no picture.
TEST(CalibratedTier, NoLiveRowsNoPictures) {
  const KvShape shape = {2, 1, 8, 8, DType::f32};
  const Profile profile = random_profile(shape, {}, {2, 1, false});
  Cache cache = empty_cache(shape, 30);
  testing_codec::for_each_element(
      shape, {0, 30},
      [&](KvKind kind, uint32_t layer, uint32_t token, uint32_t head, uint32_t dim) {
        cache.set(kind, layer, token, head, dim,
                  profile.groups()[static_cast<size_t>(kind)].mean[layer * 8 + dim]);
      });
  const auto object = encode(cache, 10, options_of(profile));
  const auto info = read_chunk_info(object);
  EXPECT_TRUE(info->pictures.empty());
  EXPECT_EQ(info->header_bytes, info->object_bytes);
  for (const GroupDistortion& group : info->distortions) {
    EXPECT_EQ(group.live_rows, 0u);
    EXPECT_EQ(group.noise, 0);
    EXPECT_EQ(group.relative_error, 0);
  }
  EXPECT_EQ(rms_difference(cache, decode(object, shape, 30, profile)), 0);
}

TEST(CalibratedTier, OutliersEscape) {
  const ShapeCase c = shape_cases()[4];  // f32
  const Profile profile = random_profile(c.shape, c.rope, c.rule);
  Cache cache = random_values(c.shape, c.tokens, 3);
  cache.set(KvKind::key, 0, 64, 1, 3, 5000.0f);
  cache.set(KvKind::value, 1, 129, 2, 7, -20000.0f);
  const auto object = encode(cache, 10, options_of(profile));
  EXPECT_GT(read_chunk_info(object)->escapes, 0u);
  const Cache restored = decode(object, c.shape, c.tokens, profile);
  EXPECT_NEAR(restored.value(KvKind::key, 0, 64, 1, 3), 5000, 3);
  EXPECT_NEAR(restored.value(KvKind::value, 1, 129, 2, 7), -20000, 3);
}

// The chunk's own account is what a caller who has both caches finds.
TEST(CalibratedTier, RecordsItsDistortion) {
  const KvShape shape = {2, 2, 8, 8, DType::f32};
  const Profile profile =
      random_profile(shape, *make_rope(Rope::Style::interleaved, 8, 100.0), {2, 1, false});
  const Cache cache = random_values(shape, 50, 3);
  const auto object = encode(cache, 2, options_of(profile, Tier::small));  // two sinks
  const Cache restored = decode(object, shape, 50, profile);
  const auto info = read_chunk_info(object);
  ASSERT_EQ(info->distortions.size(), 2u);
  const ProfileGroup& values = profile.groups()[1];
  double noise = 0, energy = 0;
  for (uint32_t layer = 0; layer < 2; ++layer)
    for (uint32_t token = 2; token < 50; ++token)
      for (uint32_t c = 0; c < 16; ++c) {
        const double x = cache.value(KvKind::value, layer, token, c / 8, c % 8);
        const double y = restored.value(KvKind::value, layer, token, c / 8, c % 8);
        const double weight = values.metric[layer * 16 + c];
        noise += weight * (x - y) * (x - y);
        energy += weight * std::pow(x - values.mean[layer * 16 + c], 2);
      }
  const GroupDistortion& found = info->distortions[1];
  EXPECT_EQ(found.kind, KvKind::value);
  EXPECT_NEAR(found.noise, noise / (48 * 32), noise * 1e-5);
  EXPECT_NEAR(found.relative_error, std::sqrt(noise / energy), 1e-5);
  EXPECT_GT(found.noise, 0);
}

Profile expecting(const KvShape& shape, const Rope& rope, std::array<float, 3> noise) {
  ProfileFields fields = testing_profile::ProfileMaker(shape, rope, 1).make({2, 0.5, false});
  for (ProfileGroup& group : fields.groups) group.expected_noise = noise;
  return *Profile::parse(*serialise_profile(fields));
}

TEST(CalibratedTier, AChunkOffTheProfileGetsAFinerTier) {
  const ShapeCase c = shape_cases()[6];
  const Cache cache = random_values(c.shape, c.tokens, 11);
  const auto tier_with = [&](std::array<float, 3> noise, Tier asked, double factor = 1.5) {
    const Profile profile = expecting(c.shape, c.rope, noise);
    EncodeOptions options = options_of(profile, asked);
    options.noise_factor = factor;
    return read_chunk_info(encode(cache, 10, options))->tier;
  };
  const auto noise_at = [&](Tier tier) {
    const Profile profile = expecting(c.shape, c.rope, {0, 0, 0});
    double sum = 0, channels = 0;
    const auto info = read_chunk_info(encode(cache, 10, options_of(profile, tier)));
    for (size_t g = 0; g < profile.groups().size(); ++g) {
      const auto n = static_cast<double>(profile.groups()[g].mean.size());
      sum += info->distortions[g].noise * n;
      channels += n;
    }
    return sum / channels;
  };
  const double high = noise_at(Tier::high), balanced = noise_at(Tier::balanced),
               small = noise_at(Tier::small);
  ASSERT_LT(high, balanced);
  ASSERT_LT(balanced, small);
  // What a profile must expect for a budget.
  const auto for_budget = [](double budget) { return static_cast<float>(budget / 1.5); };
  EXPECT_EQ(tier_with({1, 1, for_budget(small * 1.001)}, Tier::small), Tier::small);
  EXPECT_EQ(tier_with({1, 1, for_budget((small + balanced) / 2)}, Tier::small), Tier::balanced);
  EXPECT_EQ(tier_with({1, 1, for_budget((balanced + high) / 2)}, Tier::small), Tier::high);
  EXPECT_EQ(tier_with({1, for_budget((balanced + high) / 2), 1}, Tier::balanced), Tier::high);
  const float little = for_budget(high / 2);
  EXPECT_EQ(tier_with({1, 1, little}, Tier::small), Tier::int8) << "no tier is fine enough";
  EXPECT_EQ(tier_with({little, 1, 1}, Tier::high), Tier::int8);
  EXPECT_EQ(tier_with({1, 1, little}, Tier::small, 0), Tier::small) << "never asked to";
  EXPECT_EQ(tier_with({0, 0, 0}, Tier::small), Tier::small) << "the profile knows nothing";
}

// Components that are silent at a coarse step are analysed when a finer tier needs them: the object
// is that of asking for it at once. What a coarse tier leaves out counts as its noise.
TEST(CalibratedTier, AFinerTierHasTheComponentsThatACoarseOneLeftOut) {
  const ShapeCase c = shape_cases()[6];
  const Cache cache = random_values(c.shape, c.tokens, 11);
  ProfileFields fields = testing_profile::ProfileMaker(c.shape, c.rope, 1).make({2, 0.5, false});
  const double coarse = fields.tiers[2].step, fine = fields.tiers[0].step;
  ASSERT_LT(fine * 2, coarse);
  for (ProfileGroup& group : fields.groups) {
    // By its variances the second half is silent at the coarse step, and not at the fine one.
    for (size_t i = 0; i < group.variance.size(); ++i) {
      const double spread = i < group.variance.size() / 2 ? coarse : kSilentSpread * fine * 1.5;
      group.variance[i] = static_cast<float>(spread * spread);
    }
    EXPECT_EQ(audible_components(group, fine), group.components);
    EXPECT_EQ(audible_components(group, coarse), std::max(1u, group.components / 2));
  }
  const auto profile_expecting = [&](std::array<float, 3> noise) {
    for (ProfileGroup& group : fields.groups) group.expected_noise = noise;
    return *Profile::parse(*serialise_profile(fields));
  };
  const auto noise_at = [&](Tier tier) {
    const Profile profile = profile_expecting({0, 0, 0});
    const auto info = read_chunk_info(encode(cache, 10, options_of(profile, tier)));
    double sum = 0, channels = 0;
    for (size_t g = 0; g < profile.groups().size(); ++g) {
      const auto n = static_cast<double>(profile.groups()[g].mean.size());
      sum += info->distortions[g].noise * n;
      channels += n;
    }
    return sum / channels;
  };
  const double budget = (noise_at(Tier::high) + noise_at(Tier::balanced)) / 2;
  const Profile strict = profile_expecting({1e6F, 1e6F, static_cast<float>(budget / 1.5)});
  EncodeOptions options = options_of(strict, Tier::small);
  options.noise_factor = 1.5;
  const std::vector<std::byte> fallen = encode(cache, 10, options);
  EXPECT_EQ(read_chunk_info(fallen)->tier, Tier::high);
  options.tier = Tier::high;
  const std::vector<std::byte> direct = encode(cache, 10, options);
  ASSERT_EQ(fallen.size(), direct.size());
  const auto differ = std::mismatch(fallen.begin(), fallen.end(), direct.begin());
  EXPECT_TRUE(differ.first == fallen.end()) << differ.first - fallen.begin();

  const Profile any = profile_expecting({0, 0, 0});
  const auto small = read_chunk_info(encode(cache, 10, options_of(any, Tier::small)));
  for (const GroupDistortion& group : small->distortions) {
    EXPECT_LE(group.live_rows, std::max(1u, group.components / 2));
    // Random values fill all components alike: half of their energy is left out.
    EXPECT_GT(group.relative_error, 0.5);
  }
}

// Keys restored at another position are the same numbers, turned for it.
TEST(CalibratedTier, AChunkIsIndependentOfItsPosition) {
  const KvShape shape = {2, 2, 16, 16, DType::f32};
  for (const auto style : {Rope::Style::neox, Rope::Style::interleaved}) {
    const Rope rope = *make_rope(style, 12, 10000.0);
    const Profile profile = random_profile(shape, rope, {2, 1, false});
    const Profile identity = *Profile::identity(shape, rope);
    for (const auto& [tier, used] :
         {std::pair(Tier::balanced, &profile), {Tier::small, &identity}, {Tier::int8, &profile}}) {
      SCOPED_TRACE(tier_name(tier));
      const Cache cache = random_values(shape, 70, 5);
      EncodeOptions options = options_of(*used, tier);
      options.rope = rope;
      const auto object = encode(cache, 300, options);
      const Cache here = decode(object, shape, 70, *used);
      const Cache there = decode(object, shape, 70, *used, 1000000);
      EXPECT_EQ(rms_difference(here, decode(object, shape, 70, *used, 300)), 0);
      const transform::RotationTable from(rope, 300, 70), to(rope, 1000000, 70);
      testing_codec::for_each_element(
          shape, {0, 70},
          [&](KvKind kind, uint32_t layer, uint32_t token, uint32_t head, uint32_t dim) {
            const double a = here.value(kind, layer, token, head, dim);
            const double b = there.value(kind, layer, token, head, dim);
            if (kind == KvKind::value || dim >= 12) {
              ASSERT_EQ(a, b);
              return;
            }
            // Both turned back are one number.
            uint32_t pair = 0;
            while (from.first_dim(pair) != dim && from.second_dim(pair) != dim) ++pair;
            const auto back = [&](const Cache& x, const transform::RotationTable& turns) {
              const double u = x.value(kind, layer, token, head, turns.first_dim(pair));
              const double v = x.value(kind, layer, token, head, turns.second_dim(pair));
              const double cosine = turns.cosines(pair)[token], sine = turns.sines(pair)[token];
              return dim == turns.first_dim(pair) ? u * cosine + v * sine : v * cosine - u * sine;
            };
            ASSERT_NEAR(back(here, from), back(there, to), 1e-5);
          });
    }
  }
}

TEST(CalibratedTier, PositionsThatCannotBeMoved) {
  const ShapeCase c = shape_cases()[0];
  const Profile profile = random_profile(c.shape, c.rope, c.rule);
  const Profile unturned = random_profile(c.shape, {}, c.rule);
  const Cache cache = random_values(c.shape, c.tokens, 5);
  Cache out = empty_cache(c.shape, c.tokens);
  const auto refuse = [&](const std::vector<std::byte>& object, const Profile& used,
                          uint32_t position, ErrorCode code) {
    DecodeOptions options;
    options.profile = &used;
    options.position = position;
    const Status status = decode_chunk(object, out.target(), 0, options);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, code) << status.error().message;
  };
  refuse(encode(cache, 0, options_of(profile)), profile, 500, ErrorCode::unsupported);  // sinks
  refuse(encode(cache, 9, options_of(unturned)), unturned, 500, ErrorCode::unsupported);
  refuse(encode(cache, 9, EncodeOptions{}), profile, 500, ErrorCode::unsupported);  // exact
  refuse(encode(cache, 9, options_of(profile)), profile, UINT32_MAX, ErrorCode::invalid_argument);
}

TEST(CalibratedTier, TheProfileMustBeTheOne) {
  const ShapeCase c = shape_cases()[0];
  const Profile profile = random_profile(c.shape, c.rope, c.rule, 1);
  const Profile other = random_profile(c.shape, c.rope, c.rule, 2);
  const Profile foreign = random_profile({4, 2, 16, 16, DType::f16}, c.rope, c.rule);
  const Cache cache = random_values(c.shape, c.tokens, 5);
  const auto object = encode(cache, 9, options_of(profile));
  Cache out = empty_cache(c.shape, c.tokens);
  const auto before = out.memory;
  for (const Profile* wrong : std::initializer_list<const Profile*>{nullptr, &other, &foreign}) {
    DecodeOptions options;
    options.profile = wrong;
    const Status status = decode_chunk(object, out.target(), 0, options);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(status.error().message.find(to_hex(profile.digest())), std::string::npos)
        << status.error().message;
    EXPECT_TRUE(out.memory == before);
  }
  const auto refuse_encoding = [&](const EncodeOptions& options, const char* part) {
    const auto made = encode_chunk(cache.source(), {0, c.tokens}, some_id(9), options);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(made.error().message.find(part), std::string::npos) << made.error().message;
  };
  EncodeOptions options = options_of(profile);
  options.profile = nullptr;
  refuse_encoding(options, "needs a profile");
  refuse_encoding(options_of(foreign), "layers");
  options = options_of(profile);
  options.rope = *make_rope(Rope::Style::neox, 16, 500000.0);
  refuse_encoding(options, "rotated in another way");
  options.rope = c.rope;
  options.rope.phase_steps[1] += 1 << 20;  // another rounding of the same frequency
  EXPECT_TRUE(encode_chunk(cache.source(), {0, c.tokens}, some_id(9), options).ok());
  options.rope.phase_steps[1] += 1 << 25;
  refuse_encoding(options, "rotated in another way");
  options = options_of(profile);
  options.noise_factor = -1;
  refuse_encoding(options, "noise_factor");
}

TEST(CalibratedTier, AFloorRefusesLowerTiers) {
  const ShapeCase c = shape_cases()[0];
  const Profile profile = random_profile(c.shape, c.rope, c.rule);
  const Cache cache = random_values(c.shape, c.tokens, 5);
  Cache out = empty_cache(c.shape, c.tokens);
  for (Tier tier : {Tier::exact, Tier::int8, Tier::high, Tier::balanced, Tier::small}) {
    EncodeOptions encoding = options_of(profile, tier);
    encoding.noise_factor = 0;
    const auto object = encode(cache, 9, encoding);
    for (Tier floor : {Tier::exact, Tier::int8, Tier::high, Tier::balanced, Tier::small}) {
      DecodeOptions options;
      options.profile = &profile;
      options.lowest_tier = &floor;
      EXPECT_EQ(decode_chunk(object, out.target(), 0, options).ok(), tier <= floor)
          << tier_name(tier) << " with a floor of " << tier_name(floor);
    }
  }
}

// A chunk whose values no code can hold is kept at int8, or refused where that was ruled out.
TEST(CalibratedTier, ValuesOfAnotherWorld) {
  const ShapeCase c = shape_cases()[4];
  const Profile profile = expecting(c.shape, c.rope, {1, 1, 1});
  Cache cache = random_values(c.shape, c.tokens, 5);
  cache.set(KvKind::key, 1, 20, 0, 0, 1e30f);
  EncodeOptions options = options_of(profile);
  const auto object = encode(cache, 9, options);
  EXPECT_EQ(read_chunk_info(object)->tier, Tier::int8);
  options.noise_factor = 0;
  const auto refused = encode_chunk(cache.source(), {0, c.tokens}, some_id(9), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
}

TEST(CalibratedTier, IdentityNeedsNoCalibrationAndNoProfileToDecode) {
  const Cache cache = testing_codec::real_cache();
  const KvShape& shape = cache.geometry.shape;
  const Profile profile = *Profile::identity(shape, testing_codec::real_rope());
  size_t last = SIZE_MAX;
  for (Tier tier : kCalibratedTiers) {
    const auto object = encode(cache, 0, options_of(profile, tier));
    const auto info = read_chunk_info(object);
    EXPECT_EQ(info->tier, tier);
    EXPECT_EQ(info->profile, profile.digest());
    EXPECT_LT(object.size(), last);
    last = object.size();
    for (const GroupDistortion& group : info->distortions) {
      // Plain rounding leaves step / sqrt(12), in root mean squares.
      EXPECT_NEAR(group.relative_error, profile.tier(tier).step / std::sqrt(12.0), 0.06);
    }
    Cache out = empty_cache(shape, 64);
    ASSERT_TRUE(decode_chunk(object, out.target(), 0).ok());
    EXPECT_LT(rms_difference(cache, out, 4), profile.tier(tier).step);
    const Profile other = *Profile::identity(shape, {});
    DecodeOptions wrong;
    wrong.profile = &other;
    EXPECT_FALSE(decode_chunk(object, out.target(), 0, wrong).ok());
  }
}

}  // namespace
}  // namespace kvcodec
