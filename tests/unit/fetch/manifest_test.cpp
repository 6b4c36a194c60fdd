// SPDX-License-Identifier: Apache-2.0
#include "fetch/manifest.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/hash.h"

namespace kvcodec {
namespace {

Manifest some_manifest(uint32_t chunk = 5, size_t window = 3) {
  Manifest manifest;
  manifest.ns = sha256(std::as_bytes(std::span("ns")));
  manifest.key = sha256(std::as_bytes(std::span("key")));
  manifest.chunk = chunk;
  manifest.chunk_tokens = 256;
  manifest.renditions = {"exact", "int8-h512", "small-0123456789abcdef-h512"};
  for (size_t i = 0; i < window * 3; ++i) manifest.bytes.push_back(static_cast<uint32_t>(1000 + i));
  return manifest;
}

// Puts a right checksum under changed bytes.
std::vector<std::byte> sealed(std::vector<std::byte> bytes) {
  const size_t end = bytes.size() - 8;
  const uint64_t sum = checksum64(std::span(bytes).first(end));
  std::memcpy(bytes.data() + end, &sum, 8);
  return bytes;
}

void expect_refused(std::span<const std::byte> bytes, const std::string& what,
                    ErrorCode code = ErrorCode::corrupt) {
  const auto parsed = parse_manifest(bytes);
  ASSERT_FALSE(parsed.ok()) << what;
  EXPECT_EQ(parsed.error().code, code) << what << ": " << parsed.error().message;
  EXPECT_NE(parsed.error().message.find("manifest"), std::string::npos);
}

TEST(Manifest, GoesBothWays) {
  const Manifest manifest = some_manifest();
  const auto parsed = parse_manifest(serialise_manifest(manifest));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->ns, manifest.ns);
  EXPECT_EQ(parsed->key, manifest.key);
  EXPECT_EQ(parsed->renditions, manifest.renditions);
  EXPECT_EQ(parsed->bytes, manifest.bytes);
  EXPECT_EQ(parsed->first_chunk(), 3u);
  EXPECT_EQ(parsed->size_of(4, 1), 1004u);
  EXPECT_TRUE(check_manifest(*parsed, manifest.ns, manifest.key, 5, 256).ok());
}

TEST(Manifest, TheLargestFits) {
  Manifest manifest = some_manifest(100, kManifestWindow);
  manifest.renditions.clear();
  for (size_t r = 0; r < kMaxRenditions; ++r)
    manifest.renditions.push_back("balanced-0123456789abcdef-h" + std::to_string(1000 + 8 * r));
  manifest.bytes.assign(kManifestWindow * kMaxRenditions, UINT32_MAX);
  const auto bytes = serialise_manifest(manifest);
  EXPECT_LE(bytes.size(), kMaxManifestBytes);
  EXPECT_TRUE(parse_manifest(bytes).ok());
}

TEST(Manifest, EveryFlippedBitAndEveryLengthIsRefused) {
  const auto bytes = serialise_manifest(some_manifest());
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto changed = bytes;
      changed[at] ^= std::byte{static_cast<uint8_t>(1 << bit)};
      const bool version = at == 8 || at == 9;
      if (!version) expect_refused(changed, "bit of byte " + std::to_string(at));
      EXPECT_FALSE(parse_manifest(changed).ok());
    }
    expect_refused(std::span(bytes).first(at), "length " + std::to_string(at));
  }
  auto longer = bytes;
  longer.push_back({});
  expect_refused(longer, "a byte more");
  expect_refused(sealed(longer), "a byte more, sealed");
}

// Fields that lie under a right checksum: nothing they claim is believed or allocated.
TEST(Manifest, HostileFields) {
  const auto good = serialise_manifest(some_manifest());
  const auto with = [&](size_t at, auto value) {
    auto changed = good;
    std::memcpy(changed.data() + at, &value, sizeof value);
    return sealed(std::move(changed));
  };
  expect_refused(with(8, uint16_t{2}), "newer version", ErrorCode::unsupported);
  expect_refused(with(8, uint16_t{0}), "version 0");
  for (int renditions : {0, 1, 2, 4, 17, 65535})
    expect_refused(with(10, static_cast<uint16_t>(renditions)),
                   "renditions " + std::to_string(renditions));
  for (uint32_t window : {0u, 1u, 2u, 4u, 65u, UINT32_MAX})
    expect_refused(with(12, window), "window " + std::to_string(window));
  expect_refused(with(16, uint32_t{1}), "a window that begins before the sequence");
  expect_refused(with(20, uint32_t{0}), "chunk_tokens 0");
  constexpr size_t kFirstName = 24 + 64;
  for (int length : {0, 1, 4, 6, 33, 255})
    expect_refused(with(kFirstName, static_cast<uint8_t>(length)),
                   "name of " + std::to_string(length));
  expect_refused(with(kFirstName + 1, 'E'), "no rendition");
  Manifest twice = some_manifest();
  twice.renditions[1] = "exact";
  expect_refused(serialise_manifest(twice), "a name twice");
}

TEST(Manifest, IsOfOneChunk) {
  const Manifest manifest = some_manifest();
  const Digest other = sha256(std::as_bytes(std::span("other")));
  EXPECT_FALSE(check_manifest(manifest, other, manifest.key, 5, 256).ok());
  EXPECT_FALSE(check_manifest(manifest, manifest.ns, other, 5, 256).ok());
  EXPECT_FALSE(check_manifest(manifest, manifest.ns, manifest.key, 4, 256).ok());
  EXPECT_FALSE(check_manifest(manifest, manifest.ns, manifest.key, 5, 128).ok());
}

}  // namespace
}  // namespace kvcodec
