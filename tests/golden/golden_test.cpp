// SPDX-License-Identifier: Apache-2.0
// The pinned objects: good ones restore what they restored when they were written, and are what
// the encoder writes today; bad ones are refused as the manifest says.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "golden/golden_cases.h"

namespace kvcodec {
namespace {

const std::string kFolder = KVCODEC_GOLDEN_FOLDER;

std::set<std::string> files_in(const char* part, const char* extension) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder + "/" + part)) {
    if (entry.path().extension() == extension) names.insert(entry.path().stem().string());
  }
  return names;
}

TEST(GoldenGood, EveryFileHasItsCase) {
  std::set<std::string> names;
  for (const GoldenCase& golden : golden_cases(kFolder)) names.insert(golden.name);
  EXPECT_EQ(files_in("good", ".kvc"), names);
  EXPECT_EQ(files_in("good", ".raw"), names);
}

TEST(GoldenGood, RestoresThePinnedElements) {
  for (const GoldenCase& golden : golden_cases(kFolder)) {
    SCOPED_TRACE(golden.name);
    const std::vector<std::byte> object = read_golden(kFolder + "/good/" + golden.name + ".kvc");
    const Result<std::vector<std::byte>> restored = decode_golden(object, golden.profile.get());
    ASSERT_TRUE(restored.ok()) << restored.error().message;
    EXPECT_EQ(*restored, read_golden(kFolder + "/good/" + golden.name + ".raw"));
    if (golden.options.tier == Tier::exact) {
      EXPECT_EQ(*restored, golden.values);
    }
    DecodeOptions options;
    options.expected = &golden.id;
    options.profile = golden.profile.get();
    EXPECT_TRUE(verify_chunk(object, options).ok());
  }
}

TEST(GoldenGood, TheEncoderWritesThePinnedBytes) {
  for (const GoldenCase& golden : golden_cases(kFolder)) {
    for (int threads : {1, 3}) {
      SCOPED_TRACE(golden.name);
      GoldenCase again = golden;
      again.options.threads = threads;
      const Result<std::vector<std::byte>> object = encode_golden(again);
      ASSERT_TRUE(object.ok()) << object.error().message;
      EXPECT_TRUE(*object == read_golden(kFolder + "/good/" + golden.name + ".kvc"));
    }
  }
}

// The files together use every part of the format.
TEST(GoldenGood, CoversTheFormat) {
  std::set<std::string> seen;
  for (const std::string& name : files_in("good", ".kvc")) {
    const auto info = read_chunk_info(read_golden(kFolder + "/good/" + name + ".kvc"));
    ASSERT_TRUE(info.ok()) << info.error().message;
    const std::string tier = tier_name(info->tier);
    seen.insert(tier + " " + dtype_name(info->shape.dtype));
    if (info->tier == Tier::int8) {
      seen.insert("rope " + std::to_string(static_cast<int>(info->rope.style)));
      if (info->rope.rotary_dims < info->shape.key_dim) seen.insert("partial rope");
      if (info->escapes > 0) seen.insert("escapes");
      if (info->sink_tokens > 0) seen.insert("sinks");
      if (info->sink_tokens == info->tokens) seen.insert("all sinks");
    }
    if (is_calibrated(info->tier)) {
      seen.insert(info->distortions[0].step == 0
                      ? "identity"
                      : tier + " rope " + std::to_string(static_cast<int>(info->rope.style)));
      if (info->escapes > 0) seen.insert("calibrated escapes");
      if (info->sink_tokens > 0) seen.insert("calibrated sinks");
      if (info->sink_tokens == info->tokens) seen.insert("calibrated all sinks");
      if (info->pictures.empty()) seen.insert("no pictures");
      for (const GroupDistortion& group : info->distortions)
        if (group.live_rows < group.components) seen.insert("cropped rows");
      continue;
    }
    if (info->tokens == 1) seen.insert("one token");
    if (info->shape.value_dim == 0) seen.insert(tier + " no values");
    for (const PictureInfo& picture : info->pictures) {
      if (picture.plane == 0) seen.insert(tier + " " + picture.coding);
      const uint32_t channels = info->shape.channels(picture.kind);
      if (picture.first_row % channels != 0) seen.insert(tier + " cut layer");
      if (picture.rows > channels) seen.insert(tier + " grouped layers");
    }
  }
  for (const char* part : {"exact f16",
                           "exact bf16",
                           "exact f32",
                           "int8 f16",
                           "int8 bf16",
                           "int8 f32",
                           "high bf16",
                           "high f32",
                           "balanced f16",
                           "small f16",
                           "identity",
                           "high rope 0",
                           "high rope 1",
                           "high rope 2",
                           "calibrated escapes",
                           "calibrated sinks",
                           "calibrated all sinks",
                           "cropped rows",
                           "no pictures",
                           "rope 0",
                           "rope 1",
                           "rope 2",
                           "partial rope",
                           "escapes",
                           "sinks",
                           "all sinks",
                           "one token",
                           "exact no values",
                           "int8 no values",
                           "exact raw",
                           "exact hevc",
                           "int8 raw",
                           "int8 hevc",
                           "int8 hevc-rice",
                           "exact cut layer",
                           "int8 cut layer",
                           "exact grouped layers",
                           "int8 grouped layers"}) {
    EXPECT_TRUE(seen.contains(part)) << part;
  }
}

TEST(GoldenBad, EveryFileIsRefusedAsTheManifestSays) {
  const std::vector<std::byte> text = read_golden(kFolder + "/bad/manifest.json");
  const auto* begin = reinterpret_cast<const char*>(text.data());
  const auto manifest = nlohmann::json::parse(begin, begin + text.size());
  std::set<std::string> names;
  for (const auto& entry : manifest) {
    const std::string file = entry["file"];
    SCOPED_TRACE(file);
    names.insert(std::filesystem::path(file).stem());
    const std::vector<std::byte> object = read_golden(kFolder + "/bad/" + file);
    ChunkId expected;
    DecodeOptions options;
    if (entry.contains("expected")) {
      const auto& id = entry["expected"];
      expected = {*digest_from_hex(id["namespace"].get<std::string>()),
                  *digest_from_hex(id["key"].get<std::string>()), id["first_token"]};
      options.expected = &expected;
    }
    std::optional<Profile> profile;
    if (entry.contains("profile")) {
      profile = read_golden_profile(kFolder, entry["profile"]);
      options.profile = &*profile;
    }
    // The shape of the objects that the faults were put in.
    KvGeometry geometry = KvGeometry::contiguous({2, 2, 16, 16, DType::f16}, 40);
    if (profile) {
      KvShape shape = profile->shape();
      shape.dtype = entry["profile"] == "no_values" ? DType::f32 : DType::f16;
      geometry = KvGeometry::contiguous(shape, 48);
    }
    std::vector<std::byte> memory(geometry.contiguous_bytes(), std::byte{0xA5});
    const Status decoded = decode_chunk(object, {memory, &geometry}, 0, options);
    const Status verified = verify_chunk(object, options);
    for (const Status& status : {decoded, verified}) {
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(error_code_name(status.error().code), entry["code"]) << status.error().message;
      const std::string part = entry["message"];
      EXPECT_NE(status.error().message.find(part), std::string::npos)
          << "expected: " << part << "\nfound:    " << status.error().message;
    }
    EXPECT_TRUE(std::ranges::all_of(memory, [](std::byte b) { return b == std::byte{0xA5}; }));
  }
  EXPECT_EQ(files_in("bad", ".kvc"), names);
}

TEST(GoldenBad, TheFilesAreThoseOfTheGenerator) {
  std::set<std::string> names;
  for (const GoldenFault& fault : golden_faults(kFolder)) {
    EXPECT_TRUE(fault.object == read_golden(kFolder + "/bad/" + fault.name + ".kvc")) << fault.name;
    names.insert(fault.name);
  }
  EXPECT_EQ(files_in("bad", ".kvc"), names);
}

}  // namespace
}  // namespace kvcodec
