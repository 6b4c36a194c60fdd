// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>

#include "base/hash.h"
#include "format/header.h"
#include "unit/codec/codec_cases.h"

namespace kvcodec {
namespace {

using namespace testing_codec;

const KvShape kShape{2, 2, 16, 16, DType::f16};

struct Object {
  Cache cache = random_values(kShape, 24, 1);
  ChunkId id = some_id(8);
  std::vector<std::byte> bytes;

  explicit Object(Tier tier = Tier::exact) {
    EncodeOptions options;
    options.tier = tier;
    auto encoded = encode_chunk(cache.source(), {8, 16}, id, options);
    EXPECT_TRUE(encoded.ok());
    bytes = *std::move(encoded);
  }
};

// Decoding must fail with this code and these words, and leave the target as it was.
void expect_refused(std::span<const std::byte> object, Cache target, uint32_t first_token,
                    const DecodeOptions& options, ErrorCode code, const std::string& words) {
  for (std::byte& byte : target.memory) byte = std::byte{0x5a};
  const std::vector<std::byte> before = target.memory;
  const Status status = decode_chunk(object, target.target(), first_token, options);
  ASSERT_FALSE(status.ok()) << words;
  EXPECT_EQ(status.error().code, code) << status.error().message;
  EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
  EXPECT_TRUE(target.memory == before);
  if (code == ErrorCode::corrupt) {
    const Status verified = verify_chunk(object, options);
    ASSERT_FALSE(verified.ok());
    EXPECT_EQ(verified.error().message, status.error().message);
  }
}

TEST(DecodeErrors, AnotherChunk) {
  const Object object;
  Cache target = empty_cache(kShape, 24);
  ChunkId other = object.id;
  DecodeOptions options;
  options.expected = &other;
  EXPECT_TRUE(decode_chunk(object.bytes, target.target(), 8, options).ok());
  other.key.bytes[31] ^= std::byte{1};
  expect_refused(object.bytes, target, 8, options, ErrorCode::corrupt, "key: expected 2222");
  other = object.id;
  other.ns.bytes[0] ^= std::byte{1};
  expect_refused(object.bytes, target, 8, options, ErrorCode::corrupt, "namespace: expected 1011");
  other = object.id;
  other.first_token = 7;
  expect_refused(object.bytes, target, 8, options, ErrorCode::corrupt,
                 "first token: expected 7, found 8");
}

TEST(DecodeErrors, AnotherTier) {
  const Object object(Tier::int8);
  Cache target = empty_cache(kShape, 24);
  Tier tier = Tier::int8;
  DecodeOptions options;
  options.expected_tier = &tier;
  EXPECT_TRUE(decode_chunk(object.bytes, target.target(), 8, options).ok());
  tier = Tier::exact;
  expect_refused(object.bytes, target, 8, options, ErrorCode::corrupt,
                 "tier: expected exact, found int8");
}

TEST(DecodeErrors, AnotherShape) {
  const Object object;
  const struct {
    KvShape shape;
    const char* words;
  } cases[] = {{{3, 2, 16, 16, DType::f16}, "layers of the object is 2, of the target 3"},
               {{2, 1, 16, 16, DType::f16}, "kv_heads"},
               {{2, 2, 8, 16, DType::f16}, "key_dim"},
               {{2, 2, 16, 8, DType::f16}, "value_dim"},
               {{2, 2, 16, 16, DType::bf16}, "dtype of the object is f16, of the target bf16"}};
  for (const auto& c : cases)
    expect_refused(object.bytes, empty_cache(c.shape, 24), 8, {}, ErrorCode::invalid_argument,
                   c.words);
}

TEST(DecodeErrors, TargetTooSmall) {
  const Object object;
  const Cache target = empty_cache(kShape, 24);
  expect_refused(object.bytes, target, 9, {}, ErrorCode::invalid_argument, "tokens 9 to 25");
  expect_refused(object.bytes, target, UINT32_MAX, {}, ErrorCode::invalid_argument, "tokens");
  Cache short_memory = target;
  short_memory.memory.pop_back();
  expect_refused(object.bytes, short_memory, 8, {}, ErrorCode::invalid_argument, "geometry");
  const Status status = decode_chunk(object.bytes, {short_memory.memory, nullptr}, 8);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
}

TEST(DecodeErrors, Limits) {
  const Object object;
  const Cache target = empty_cache(kShape, 24);
  DecodeOptions options;
  options.limits.max_tokens = 15;
  expect_refused(object.bytes, target, 8, options, ErrorCode::corrupt, "tokens");
  options.limits = {};
  options.limits.max_decoded_bytes = 2 * 2 * 16 * 2 * 2 * 16 - 1;
  expect_refused(object.bytes, target, 8, options, ErrorCode::corrupt, "at most 4095 bytes");
  options.limits.max_decoded_bytes += 1;  // the content fits, its pictures do not
  expect_refused(object.bytes, target, 8, options, ErrorCode::corrupt, "pictures have 41472");
  options.limits = {};
  options.limits.max_object_bytes = object.bytes.size() - 1;
  expect_refused(object.bytes, target, 8, options, ErrorCode::corrupt, "object_bytes");
}

TEST(DecodeErrors, EveryTruncationAndAnExtraByte) {
  for (Tier tier : {Tier::exact, Tier::int8}) {
    const Object object(tier);
    const Cache target = empty_cache(kShape, 24);
    for (size_t size = 0; size < object.bytes.size(); ++size)
      expect_refused(std::span(object.bytes).first(size), target, 8, {}, ErrorCode::corrupt, "");
    std::vector<std::byte> longer = object.bytes;
    longer.push_back(std::byte{0});
    expect_refused(longer, target, 8, {}, ErrorCode::corrupt,
                   "object size: expected " + std::to_string(object.bytes.size()) + " bytes");
  }
}

TEST(DecodeErrors, EveryFlippedBit) {
  for (Tier tier : {Tier::exact, Tier::int8}) {
    const Object object(tier);
    Cache target = empty_cache(kShape, 24);
    const std::vector<std::byte> before = target.memory;
    std::vector<std::byte> flipped = object.bytes;
    DecodeOptions options;
    options.threads = 1;
    for (size_t bit = 0; bit < 8 * flipped.size(); ++bit) {
      const auto mask = static_cast<std::byte>(1u << bit % 8);
      flipped[bit / 8] ^= mask;
      const Status status = decode_chunk(flipped, target.target(), 8, options);
      flipped[bit / 8] ^= mask;
      ASSERT_FALSE(status.ok()) << "bit " << bit;
      // A version with a bit more is a newer one.
      const bool version = bit / 8 == 8 || bit / 8 == 9;
      ASSERT_TRUE(status.error().code == ErrorCode::corrupt ||
                  (version && status.error().code == ErrorCode::unsupported))
          << "bit " << bit << ": " << status.error().message;
      ASSERT_FALSE(status.error().message.empty());
    }
    EXPECT_TRUE(target.memory == before);
  }
}

TEST(DecodeErrors, PayloadDamageNamesThePicture) {
  Object object;
  const ChunkInfo info = *read_chunk_info(object.bytes);
  ASSERT_EQ(info.pictures.size(), 4u);
  for (size_t i = 0; i < info.pictures.size(); ++i) {
    std::vector<std::byte> damaged = object.bytes;
    damaged[info.pictures[i].offset] ^= std::byte{1};
    expect_refused(damaged, empty_cache(kShape, 24), 8, {}, ErrorCode::corrupt,
                   "picture " + std::to_string(i) + " (" + kv_kind_name(info.pictures[i].kind) +
                       " rows from 0) at offset " + std::to_string(info.pictures[i].offset) +
                       ": checksum of the stored bytes");
  }
}

// An object whose payloads and header were changed by someone who can compute checksums.
std::vector<std::byte> with_payload(const std::vector<std::byte>& object, size_t index,
                                    std::span<const std::byte> payload) {
  format::Header header = *format::read_header(object, {});
  std::vector<std::byte> payloads;
  for (size_t i = 0; i < header.pictures.size(); ++i) {
    format::Picture& picture = header.pictures[i];
    auto bytes = std::span(object).subspan(picture.offset, picture.bytes);
    if (i == index) bytes = payload;
    picture.bytes = bytes.size();
    picture.payload_checksum = checksum64(bytes);
    payloads.insert(payloads.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> changed = format::write_header(header);
  changed.insert(changed.end(), payloads.begin(), payloads.end());
  return changed;
}

TEST(DecodeErrors, WrongSamplesAndBrokenStreams) {
  const Cache cache = real_cache();
  const auto object = *encode_chunk(cache.source(), {0, 64}, some_id(), {});
  const format::Header header = *format::read_header(object, {});
  ASSERT_EQ(header.pictures[0].coding, format::Coding::hevc);
  const auto payload =
      std::span(object).subspan(header.pictures[0].offset, header.pictures[0].bytes);
  const Cache target = empty_cache(cache.geometry.shape, 64);
  // The slice of the other kind's picture is a valid stream of other samples.
  const auto other = std::span(object).subspan(header.pictures[2].offset, header.pictures[2].bytes);
  expect_refused(with_payload(object, 0, other), target, 0, {}, ErrorCode::corrupt,
                 "picture 0 (K rows from 0)");
  // (Its last byte may hold nothing but the stop bit.)
  for (size_t keep : {size_t{1}, payload.size() / 2, payload.size() - 2})
    expect_refused(with_payload(object, 0, payload.first(keep)), target, 0, {}, ErrorCode::corrupt,
                   "picture 0 (K rows from 0)");
  std::vector<std::byte> noise(payload.begin(), payload.end());
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<std::byte>(i * 131 + 7);
  expect_refused(with_payload(object, 0, noise), target, 0, {}, ErrorCode::corrupt,
                 "picture 0 (K rows from 0)");
}

TEST(DecodeErrors, HostileInt8NumbersRestoreToFiniteOnes) {
  // Everything the header may legally hold decodes, whatever it means: infinite products included.
  const Object object(Tier::int8);
  format::Header header = *format::read_header(object.bytes, {});
  for (auto& steps : header.steps)
    for (float& step : steps) step = 3e38f;
  for (auto& offsets : header.row_offsets)
    for (int16_t& offset : offsets) offset = INT16_MIN;
  header.escapes = {{KvKind::key, 0, 15, INT32_MIN}, {KvKind::value, 63, 3, INT32_MAX}};
  header.rope = *make_rope(Rope::Style::neox, 16, 10000.0);
  std::vector<std::byte> changed = format::write_header(header);
  const ChunkInfo info = *read_chunk_info(object.bytes);
  changed.insert(changed.end(), object.bytes.begin() + static_cast<ptrdiff_t>(info.header_bytes),
                 object.bytes.end());
  Cache target = empty_cache(kShape, 24);
  ASSERT_TRUE(decode_chunk(changed, target.target(), 8).ok());
  for_each_element(kShape, {8, 16},
                   [&](auto... place) { ASSERT_LT(target.bits(place...) & 0x7fff, 0x7c00u); });
}

}  // namespace
}  // namespace kvcodec
