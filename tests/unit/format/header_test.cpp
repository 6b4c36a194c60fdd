// SPDX-License-Identifier: Apache-2.0
#include "format/header.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "format/header_fields.h"
#include "unit/format/random_header.h"

namespace kvcodec::format {
namespace {

void expect_equal(const Header& a, const Header& b) {
  EXPECT_EQ(a.tier, b.tier);
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.profile, b.profile);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.rope, b.rope);
  EXPECT_EQ(a.sink_tokens, b.sink_tokens);
  EXPECT_EQ(a.max_picture_height, b.max_picture_height);
  EXPECT_EQ(a.sinks, b.sinks);
  EXPECT_EQ(a.escapes, b.escapes);
  EXPECT_EQ(a.object_bytes, b.object_bytes);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(a.symbol_mantissa_bits[i], b.symbol_mantissa_bits[i]);
    EXPECT_EQ(a.row_keys[i], b.row_keys[i]);
    EXPECT_EQ(a.steps[i], b.steps[i]);
    EXPECT_EQ(a.row_offsets[i], b.row_offsets[i]);
  }
  EXPECT_EQ(a.basis, b.basis);
  ASSERT_EQ(a.groups.size(), b.groups.size());
  for (size_t i = 0; i < a.groups.size(); ++i) {
    const BasisGroup &g = a.groups[i], &h = b.groups[i];
    EXPECT_EQ(std::tie(g.kind, g.first_layer, g.layers, g.components, g.live_rows, g.step),
              std::tie(h.kind, h.first_layer, h.layers, h.components, h.live_rows, h.step));
    EXPECT_EQ(std::tie(g.delta[0], g.delta[1], g.noise, g.relative_error),
              std::tie(h.delta[0], h.delta[1], h.noise, h.relative_error));
  }
  ASSERT_EQ(a.pictures.size(), b.pictures.size());
  for (size_t i = 0; i < a.pictures.size(); ++i) {
    const Picture &p = a.pictures[i], &q = b.pictures[i];
    EXPECT_EQ(std::tie(p.kind, p.plane, p.coding, p.first_row, p.rows, p.width, p.height),
              std::tie(q.kind, q.plane, q.coding, q.first_row, q.rows, q.width, q.height));
    EXPECT_EQ(std::tie(p.offset, p.bytes, p.payload_checksum, p.content_checksum),
              std::tie(q.offset, q.bytes, q.payload_checksum, q.content_checksum));
  }
}

TEST(Header, RoundTripsEveryField) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Header header = random_header(seed);
    const std::vector<std::byte> bytes = write_header(header);
    const Result<Header> read = read_header(bytes, {});
    ASSERT_TRUE(read.ok()) << read.error().message;
    expect_equal(header, *read);
    if (HasFailure()) return;
  }
}

TEST(Header, WritesTheSpecifiedBytes) {
  Header header = example_header();
  header.id.ns.bytes[0] = std::byte{0xA1};
  header.id.key.bytes[31] = std::byte{0xB2};
  const std::vector<std::byte> bytes = write_header(header);
  const size_t size = 176 + 2 * 8 + 32 + 2 * 2 * 4 + 32 * 2 + 64 + 3 * 16 + 2 * 52 + 8;
  ASSERT_EQ(bytes.size(), size);
  auto at = [&]<typename T>(size_t offset, T) { return load_le<T>(bytes.data() + offset); };
  EXPECT_EQ(at(0, uint64_t{}), 0x0A1A0A0D43564B89u);
  EXPECT_EQ(at(8, uint16_t{}), 1);
  EXPECT_EQ(at(10, uint16_t{}), 2);
  EXPECT_EQ(at(12, uint32_t{}), size);
  EXPECT_EQ(at(16, uint64_t{}), size + 80);
  EXPECT_EQ(at(24, uint8_t{}), 0xA1);
  EXPECT_EQ(at(87, uint8_t{}), 0xB2);
  EXPECT_EQ(at(120, uint32_t{}), 512u);
  EXPECT_EQ(at(124, uint32_t{}), 6u);
  EXPECT_EQ(at(144, uint16_t{}), 1);
  EXPECT_EQ(at(146, uint8_t{}), 2);
  EXPECT_EQ(at(156, uint32_t{}), 144u);
  EXPECT_EQ(at(160, uint32_t{}), 2u);
  EXPECT_EQ(at(164, uint32_t{}), 3u);
  EXPECT_EQ(at(176, uint64_t{}), uint64_t{1} << 61);  // phase_steps
  EXPECT_EQ(at(192, uint8_t{}), 7);                   // row_keys
  EXPECT_EQ(at(224, float{}), 0.5f);                  // steps
  EXPECT_EQ(at(240, int16_t{}), -3);                  // row_offsets
  EXPECT_EQ(at(368 + 28, int32_t{}), -128);           // the second escape's code
  EXPECT_EQ(at(416 + 20, uint64_t{}), size);          // the first picture's offset
  EXPECT_EQ(at(416 + 52 + 20, uint64_t{}), size + 40);
}

TEST(Header, IsReadFromTheBeginningOfAnObject) {
  Header header = example_header();
  std::vector<std::byte> object = write_header(header);
  const size_t size = object.size();
  object.resize(header.object_bytes);
  const Result<uint32_t> bytes = header_bytes(std::span(object).first(kPrefixBytes));
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  EXPECT_EQ(*bytes, size);
  const Result<Header> read = read_header(object, {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  expect_equal(header, *read);
}

TEST(Header, EveryTruncationIsCorruptAndNamesTheBytesNeeded) {
  for (uint32_t seed : {1u, 2u, 3u}) {
    Header header = random_header(seed);
    const std::vector<std::byte> bytes = write_header(header);
    for (size_t length = 0; length < bytes.size(); ++length) {
      const Result<Header> read = read_header(std::span(bytes).first(length), {});
      ASSERT_FALSE(read.ok()) << length;
      EXPECT_EQ(read.error().code, ErrorCode::corrupt);
      const std::string needed = length < kPrefixBytes ? "236" : std::to_string(bytes.size());
      ASSERT_NE(read.error().message.find("truncated"), std::string::npos) << read.error().message;
      ASSERT_NE(read.error().message.find(needed), std::string::npos) << read.error().message;
    }
  }
}

TEST(Header, EverySingleBitFlipIsRefused) {
  for (uint32_t seed : {4u, 5u, 6u}) {
    Header header = random_header(seed);
    std::vector<std::byte> bytes = write_header(header);
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      const std::byte mask = std::byte{1} << (bit % 8);
      bytes[bit / 8] ^= mask;
      const Result<Header> read = read_header(bytes, {});
      bytes[bit / 8] ^= mask;
      ASSERT_FALSE(read.ok()) << "bit " << bit;
      const bool of_version = bit / 8 >= kVersionAt && bit / 8 < kVersionAt + 2;
      const bool newer = of_version && (header.version() ^ 1u << (bit - kVersionAt * 8)) > kVersion;
      ASSERT_EQ(read.error().code, newer ? ErrorCode::unsupported : ErrorCode::corrupt)
          << "bit " << bit << ": " << read.error().message;
    }
    ASSERT_TRUE(read_header(bytes, {}).ok());
  }
}

TEST(Header, LimitsAreCheckedExactly) {
  Header header = example_header();
  const std::vector<std::byte> bytes = write_header(header);
  const uint64_t decoded = header.shape.token_bytes() * header.tokens;
  EXPECT_TRUE(read_header(bytes, {header.tokens, decoded, header.object_bytes}).ok());

  const std::pair<Limits, const char*> tight[] = {
      {{header.tokens - 1, decoded, header.object_bytes}, "tokens at offset 124"},
      {{header.tokens, decoded - 1, header.object_bytes}, "decoded size"},
      {{header.tokens, decoded, header.object_bytes - 1}, "object_bytes at offset 16"}};
  for (const auto& [limits, field] : tight) {
    const Result<Header> read = read_header(bytes, limits);
    ASSERT_FALSE(read.ok()) << field;
    EXPECT_EQ(read.error().code, ErrorCode::corrupt);
    EXPECT_NE(read.error().message.find(field), std::string::npos) << read.error().message;
  }
}

}  // namespace
}  // namespace kvcodec::format
