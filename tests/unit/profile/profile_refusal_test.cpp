// SPDX-License-Identifier: Apache-2.0
// Profiles that are damaged, foreign or hostile: refused with the name of what is wrong.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "unit/profile/test_profiles.h"

namespace kvcodec {
namespace {

using testing_profile::ProfileMaker;

const KvShape kShape = {2, 1, 4, 4, DType::f16};

std::vector<std::byte> good_file() {
  return *serialise_profile(ProfileMaker(kShape, {}, 3).make({2, 0.5, false}));
}

void expect_refused(std::span<const std::byte> file, const std::string& part,
                    ErrorCode code = ErrorCode::corrupt) {
  const auto profile = Profile::parse(file);
  ASSERT_FALSE(profile.ok()) << part;
  EXPECT_EQ(profile.error().code, code) << profile.error().message;
  EXPECT_NE(profile.error().message.find(part), std::string::npos)
      << "expected: " << part << "\nfound:    " << profile.error().message;
}

// The file with a text of its header replaced by another, which may be longer or shorter.
std::vector<std::byte> with_text(const std::string& from, const std::string& to) {
  const std::vector<std::byte> file = good_file();
  const auto length = load_le<uint64_t>(file.data());
  std::string header(reinterpret_cast<const char*>(file.data()) + 8, length);
  const size_t at = header.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << header;
  header.replace(at, from.size(), to);
  ByteWriter out;
  out.put(uint64_t{header.size()});
  out.put_bytes(std::as_bytes(std::span(header)));
  out.put_bytes(std::span(file).subspan(8 + length));
  return out.bytes();
}

TEST(ProfileRefusal, EveryTruncationIsFound) {
  const std::vector<std::byte> file = good_file();
  for (size_t length = 0; length < file.size(); ++length) {
    const auto profile = Profile::parse(std::span(file).first(length));
    ASSERT_FALSE(profile.ok()) << length;
    EXPECT_EQ(profile.error().code, ErrorCode::corrupt);
  }
  std::vector<std::byte> longer = file;
  longer.push_back(std::byte{0});
  expect_refused(longer, "file size");
}

TEST(ProfileRefusal, HeadersThatAreNone) {
  std::vector<std::byte> file = good_file();
  const uint64_t huge = UINT64_MAX;
  std::memcpy(file.data(), &huge, sizeof huge);
  expect_refused(file, "not a safetensors file");
  expect_refused(with_text("{", "["), "not a JSON object");
  expect_refused(with_text("\"kvcodec_profile\"", "\"another_file\""), "kvcodec_profile");
  expect_refused(with_text("\"kvcodec_profile\":\"1\"", "\"kvcodec_profile\":\"2\""), "newer",
                 ErrorCode::unsupported);
  expect_refused(with_text("\"kvcodec_profile\":\"1\"", "\"kvcodec_profile\":\"x\""),
                 "kvcodec_profile");
  expect_refused(with_text("\"calibrated\"", "\"guessed\""), "kind");
}

TEST(ProfileRefusal, MetadataThatMakesNoSense) {
  for (const auto& [from, to, part] :
       {std::tuple(R"(\"layers\":2)", R"(\"layers\":0)", "layers"),
        {R"(\"layers\":2)", R"(\"layers\":70000)", "layers"},
        {R"(\"layers\":2)", R"(\"layers\":2.5)", "layers"},
        {R"(\"layers\":2)", R"(\"layers\":65536,\"pad\":1)", "groups"},
        {R"(\"kv_heads\":1)", R"(\"kv_heads\":2)", "groups of K: expected 2 layers, found 1"},
        {R"(\"key_dim\":4)", R"(\"key_dim\":-4)", "key_dim"},
        {R"(\"style\":\"none\")", R"(\"style\":\"some\")", "rope style"},
        {R"(\"style\":\"none\")", R"(\"style\":\"neox\")", "rotary_dims"},
        {R"(\"step\":0.05)", R"(\"step\":0)", "high.step"},
        {R"(\"step\":0.05)", R"(\"step\":-1)", "high.step"},
        {R"(\"step\":0.05)", R"(\"step\":null)", "high.step"},
        {R"(\"step\":0.2)", R"(\"step\":0.01)", "balanced.step"},
        {R"(\"dead_zone\":0.6)", R"(\"dead_zone\":1.1)", "dead_zone"},
        {R"(\"kl\":0.01)", R"(\"kl\":-1)", "kl"},
        {R"("weights":"0)", R"("weights":"x)", "weights"},
        {R"("calibration":"{}")", R"("calibration":"text")", "calibration"}}) {
    SCOPED_TRACE(to);
    expect_refused(with_text(from, to), part);
  }
}

TEST(ProfileRefusal, TensorsThatDoNotFit) {
  expect_refused(with_text("\"k.0.mean\"", "\"k.9.mean\""), "groups of K");
  expect_refused(with_text("\"k.0.basis\"", "\"k.0.other\""), "k.0.basis");
  expect_refused(with_text("\"v.0.variance\"", "\"v.0.extra\""), "v.0.variance");
  expect_refused(with_text("[4,8]", "[8,4]"), "basis");
  expect_refused(with_text("[4,8]", "[2,2,8]"), "basis");
  expect_refused(with_text("[4,8]", "[4,9]"), "has 72 bytes, found 64");
  expect_refused(with_text("[4,8]", "[4,18446744073709551615]"), "k.0.basis");
  expect_refused(with_text("\"F16\"", "\"F64\""), "k.0.basis");
  expect_refused(with_text("\"I32\"", "\"F32\""), "first_layer");
  expect_refused(with_text("\"data_offsets\":[0,64]", "\"data_offsets\":[0,64,65]"),
                 "data_offsets");
  expect_refused(with_text("\"data_offsets\":[0,64]", "\"data_offsets\":[64,0]"), "data_offsets");
  expect_refused(with_text("\"data_offsets\":[0,64]", "\"data_offsets\":[8,72]"),
                 "overlap or leave a gap");
}

// A field of one group, changed by `change`, that the writer must refuse as the reader does.
template <typename Change>
void expect_bad_group(const Change& change, const std::string& part) {
  ProfileFields fields = ProfileMaker(kShape, {}, 3).make({2, 0.5, false});
  change(fields.groups[0]);
  const auto bytes = serialise_profile(fields);
  ASSERT_FALSE(bytes.ok()) << part;
  EXPECT_EQ(bytes.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(bytes.error().message.find(part), std::string::npos)
      << "expected: " << part << "\nfound:    " << bytes.error().message;
}

TEST(ProfileRefusal, NumbersThatAreNone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (float bad : {nan, infinity, -infinity}) {
    expect_bad_group([&](ProfileGroup& g) { g.mean[1] = bad; }, "mean");
    expect_bad_group([&](ProfileGroup& g) { g.basis[3] = bad; }, "basis");
    expect_bad_group([&](ProfileGroup& g) { g.metric[2] = bad; }, "metric");
    expect_bad_group([&](ProfileGroup& g) { g.variance[0] = bad; }, "variance");
    expect_bad_group([&](ProfileGroup& g) { g.expected_noise[0] = bad; }, "expected_noise");
  }
  expect_bad_group([](ProfileGroup& g) { g.metric[2] = 0; }, "metric");
  expect_bad_group([](ProfileGroup& g) { g.metric[2] = -1; }, "metric");
  expect_bad_group([](ProfileGroup& g) { g.variance[0] = -1; }, "variance");
  expect_bad_group([](ProfileGroup& g) { g.expected_noise[2] = -1; }, "expected_noise");
  expect_bad_group([](ProfileGroup& g) { g.metric.assign(8, 3.0f); }, "length 1");
  expect_bad_group([](ProfileGroup& g) { g.mean.pop_back(); }, "arrays do not fit");
  expect_bad_group([](ProfileGroup& g) { g.basis.push_back(0); }, "arrays do not fit");
  expect_bad_group([](ProfileGroup& g) { g.first_layer = 1; }, "first_layer");
}

TEST(ProfileRefusal, EveryByteFlippedIsFoundOrHarmless) {
  const std::vector<std::byte> file = good_file();
  for (size_t i = 0; i < file.size(); ++i) {
    for (const std::byte bit : {std::byte{0x01}, std::byte{0x80}}) {
      std::vector<std::byte> flipped = file;
      flipped[i] ^= bit;
      const auto profile = Profile::parse(flipped);  // must not crash; the digest tells the rest
      EXPECT_FALSE(profile.ok() && profile->digest() == sha256(file)) << i;
    }
  }
}

}  // namespace
}  // namespace kvcodec
