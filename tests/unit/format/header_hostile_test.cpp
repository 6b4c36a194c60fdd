// SPDX-License-Identifier: Apache-2.0
// Headers whose checksum is right and whose fields are not: what the checksum cannot find.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>

#include "base/bytes.h"
#include "format/header_fields.h"
#include "unit/format/random_header.h"

namespace {
thread_local size_t allocated_bytes = 0;  // by operator new, ever
}

// Not inlined: GCC would take malloc and operator delete for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t bytes) {
  allocated_bytes += bytes;
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace kvcodec::format {
namespace {

std::vector<std::byte> example_bytes() {
  Header header = example_header();
  return write_header(header);
}

template <typename T>
std::vector<std::byte> with(size_t offset, T value) {
  std::vector<std::byte> bytes = example_bytes();
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  fix_checksum(bytes);
  return bytes;
}

// Refused as corrupt, the message holds `part`, and next to nothing was allocated.
void expect_refused(const std::vector<std::byte>& bytes, std::string_view part) {
  const size_t before = allocated_bytes;
  const Result<Header> read = read_header(bytes, {});
  EXPECT_LT(allocated_bytes - before, 16 * bytes.size());
  ASSERT_FALSE(read.ok()) << "accepted; expected: " << part;
  EXPECT_EQ(read.error().code, ErrorCode::corrupt) << read.error().message;
  EXPECT_NE(read.error().message.find(part), std::string::npos)
      << "expected: " << part << "\nfound:    " << read.error().message;
}

// Offsets of the example's arrays; WritesTheSpecifiedBytes in header_test.cpp pins them.
constexpr size_t kStepsOffset = 224, kEscapesOffset = 368, kPicturesOffset = 416;

TEST(HostileHeader, TheExampleIsAccepted) {
  const Result<Header> read = read_header(example_bytes(), {});
  ASSERT_TRUE(read.ok()) << read.error().message;
}

TEST(HostileHeader, FixedFields) {
  expect_refused(with(0, uint8_t{0x88}), "magic (not a KVCodec chunk) at offset 0");
  expect_refused(with(4, uint8_t{0x0A}), "text-mode transfer) at offset 4: expected byte 0d");
  expect_refused(with(8, uint16_t{0}), "version at offset 8: expected 1 to 2, found 0");
  expect_refused(with(10, uint16_t{0}), "tier at offset 10");
  expect_refused(with(10, uint16_t{3}), "tier at offset 10");
  expect_refused(with(10, uint16_t{1}), "sink_tokens at offset 152: expected 0 to 0, found 1");
  expect_refused(with(12, uint32_t{0}), "header_bytes at offset 12");
  expect_refused(with(16, uint64_t{10}), "header_bytes at offset 12");
  expect_refused(with(16, uint64_t{527}), "header_bytes at offset 12: expected at least 236");
  expect_refused(with(16, uint64_t{607}), "pictures[1].bytes at offset 496: expected at most 39");
  expect_refused(with(16, uint64_t{609}), "object_bytes at offset 16: expected 608");
  expect_refused(with(16, UINT64_MAX), "object_bytes at offset 16");
  expect_refused(with(120, UINT32_MAX - 5), "first_token at offset 120");
  expect_refused(with(124, uint32_t{0}), "tokens at offset 124: expected 1 to 8192, found 0");
  expect_refused(with(124, uint32_t{8193}), "tokens at offset 124: expected 1 to 8192");
  expect_refused(with(128, uint32_t{0}), "layers at offset 128");
  expect_refused(with(128, UINT32_MAX), "layers at offset 128");
  expect_refused(with(132, uint32_t{0}), "kv_heads at offset 132");
  expect_refused(with(132, UINT32_MAX), "kv_heads at offset 132");
  expect_refused(with(136, uint32_t{0}), "key_dim at offset 136");
  expect_refused(with(136, UINT32_MAX), "key_dim at offset 136");
  expect_refused(with(140, UINT32_MAX), "value_dim at offset 140");
  expect_refused(with(144, uint16_t{0}), "dtype at offset 144");
  expect_refused(with(144, uint16_t{4}), "dtype at offset 144");
  expect_refused(with(146, uint8_t{3}), "rope_style at offset 146");
  expect_refused(with(146, uint8_t{0}), "rotary_dims at offset 148: expected 0, as");
  expect_refused(with(147, uint8_t{1}), "basis at offset 147");
  expect_refused(with(148, uint32_t{0}), "rotary_dims at offset 148");
  expect_refused(with(148, uint32_t{3}), "rotary_dims at offset 148");
  expect_refused(with(148, uint32_t{6}), "rotary_dims at offset 148");
  expect_refused(with(148, UINT32_MAX), "rotary_dims at offset 148");
  expect_refused(with(152, uint32_t{7}), "sink_tokens at offset 152: expected 0 to 6, found 7");
  expect_refused(with(156, uint32_t{0}), "max_picture_height at offset 156");
  expect_refused(with(156, uint32_t{136}), "max_picture_height at offset 156");
  expect_refused(with(156, uint32_t{148}), "max_picture_height at offset 156: expected a multiple");
  expect_refused(with(156, uint32_t{8200}), "max_picture_height at offset 156");
  expect_refused(with(168, uint8_t{1}), "symbol_mantissa_bits of K at offset 168");
  expect_refused(with(169, uint8_t{1}), "symbol_mantissa_bits of V at offset 169");
  expect_refused(with(170, uint16_t{256}), "reserved at offset 170");
  expect_refused(with(172, uint32_t{1}), "group_count at offset 172");
}

TEST(HostileHeader, CountsThatDoNotFitTheBytes) {
  expect_refused(with(160, UINT32_MAX), "picture_count at offset 160: expected 2");
  expect_refused(with(160, uint32_t{1}), "picture_count at offset 160: expected 2");
  expect_refused(with(164, UINT32_MAX), "header_bytes at offset 12: expected 68719477200 from");
  expect_refused(with(164, uint32_t{2}), "header_bytes at offset 12: expected 512 from");
  expect_refused(with(128, uint32_t{1}), "header_bytes at offset 12");
  expect_refused(with(140, uint32_t{0}), "picture_count at offset 160");
  expect_refused(with(152, uint32_t{6}), "header_bytes at offset 12");
}

TEST(HostileHeader, AHundredGigabytesAreRefusedBeforeAllocation) {
  std::vector<std::byte> bytes = example_bytes();
  auto put = [&](size_t offset, uint32_t value) {
    std::memcpy(bytes.data() + offset, &value, sizeof value);
  };
  put(124, 8192);  // tokens
  put(128, 80);    // layers
  put(132, 160);   // kv_heads
  put(136, 256);   // key_dim
  put(140, 256);   // value_dim
  fix_checksum(bytes);
  expect_refused(bytes,
                 "decoded size (tokens, shape) at offset 124: expected at most 4294967296 "
                 "bytes, found 107374182400");
  // No wider limit makes the sizes overflow: the header then has not the bytes that it needs.
  const Limits wide = {UINT32_MAX, UINT64_MAX, UINT64_MAX};
  const size_t before = allocated_bytes;
  const Result<Header> read = read_header(bytes, wide);
  EXPECT_LT(allocated_bytes - before, 16 * bytes.size());
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("picture_count"), std::string::npos) << read.error().message;

  put(128, 65536);
  put(132, 65536);
  put(136, 65536);
  fix_checksum(bytes);
  expect_refused(bytes, "at most 16777216 rows of K, found 281474976710656");
}

TEST(HostileHeader, Arrays) {
  const float infinity = std::numeric_limits<float>::infinity();
  expect_refused(with(kStepsOffset, std::nanf("")), "steps[K][0] at offset 224");
  expect_refused(with(kStepsOffset + 4, infinity), "steps[K][1] at offset 228");
  expect_refused(with(kStepsOffset + 8, -0.5f), "steps[V][0] at offset 232");
  expect_refused(with(kStepsOffset + 12, 0.0f), "steps[V][1] at offset 236");

  expect_refused(with(kEscapesOffset, uint32_t{2}), "escapes[0].kind at offset 368");
  expect_refused(with(kEscapesOffset + 4, uint32_t{16}), "escapes[0].row at offset 372");
  expect_refused(with(kEscapesOffset + 8, uint32_t{6}), "escapes[0].token at offset 376");
  expect_refused(with(kEscapesOffset + 8, uint32_t{0}), "escapes[0].token at offset 376");
  for (int32_t code : {0, 127, -127}) {
    expect_refused(with(kEscapesOffset + 12, code), "escapes[0].code at offset 380");
  }
  expect_refused(with(kEscapesOffset + 8, uint32_t{2}), "escapes[1].position at offset 384");
  expect_refused(with(kEscapesOffset + 4, uint32_t{4}), "escapes[1].position at offset 384");
  expect_refused(with(kEscapesOffset, uint32_t{1}), "escapes[1].position at offset 384");
  EXPECT_TRUE(read_header(with(kEscapesOffset + 12, INT32_MIN), {}).ok());
}

TEST(HostileHeader, PictureIndex) {
  const size_t first = kPicturesOffset, second = kPicturesOffset + kPictureBytes;
  expect_refused(with(first, uint8_t{1}), "pictures[0].kind at offset 416");
  expect_refused(with(first + 1, uint8_t{1}), "pictures[0].plane at offset 417");
  expect_refused(with(first + 2, uint8_t{3}), "pictures[0].coding at offset 418");
  expect_refused(with(first + 3, uint8_t{1}), "pictures[0].reserved at offset 419");
  expect_refused(with(first + 4, uint32_t{1}), "pictures[0].first_row at offset 420");
  expect_refused(with(second + 8, uint32_t{15}), "pictures[1].rows at offset 476");
  expect_refused(with(first + 12, uint32_t{152}), "pictures[0].width at offset 428");
  expect_refused(with(first + 16, uint32_t{8}), "pictures[0].height at offset 432");
  expect_refused(with(second + 20, uint64_t{567}),
                 "pictures[1].offset at offset 488: expected 568");
  expect_refused(with(second + 20, uint64_t{569}),
                 "pictures[1].offset at offset 488: expected 568");
  expect_refused(with(first + 28, uint64_t{0}), "pictures[0].bytes at offset 444");
  expect_refused(with(first + 28, UINT64_MAX), "pictures[0].bytes at offset 444");
  expect_refused(with(first + 28, uint64_t{96}),
                 "pictures[0].bytes at offset 444: expected above 0 and below 96");
  expect_refused(with(first + 28, uint64_t{81}),
                 "pictures[0].bytes at offset 444: expected at most 80");
  expect_refused(with(second + 28, uint64_t{41}), "pictures[1].bytes at offset 496");
  expect_refused(with(second + 28, uint64_t{39}), "object_bytes at offset 16: expected 607");
  // Raw: 16 rows of 6 tokens, and one checksum.
  expect_refused(with(first + 2, uint8_t{0}), "pictures[0].bytes at offset 444: expected 96");
  Header header = example_header();
  header.pictures[0].coding = Coding::raw;
  header.pictures[0].bytes = 96;
  header.pictures[0].content_checksum = 1;
  expect_refused(write_header(header), "pictures[0].content_checksum at offset 460");
}

// Any field set to an extreme is refused, or is content: then writing what was read gives the
// same bytes, so that no two headers say the same.
TEST(HostileHeader, WhatIsAcceptedIsCanonical) {
  const uint64_t extremes[] = {0,          1,           2,          127,        128,
                               255,        0x7FFF,      0x8000,     0xFFFF,     0x7FFFFFFF,
                               0x80000000, 0xFFFFFFFFu, 0x7F800000, 0x7FC00000, UINT64_MAX / 2,
                               UINT64_MAX};
  size_t accepted = 0, refused = 0;
  for (uint32_t seed = 0; seed < 3; ++seed) {
    Header header = random_header(seed);
    const std::vector<std::byte> bytes = write_header(header);
    for (size_t offset = 0; offset + kChecksumBytes < bytes.size(); ++offset) {
      if (offset > 400 && offset + 200 < bytes.size() && offset % 7 != 0) continue;
      for (size_t width : {1u, 2u, 4u, 8u}) {
        if (offset + width + kChecksumBytes > bytes.size()) continue;
        for (uint64_t value : extremes) {
          std::vector<std::byte> changed = bytes;
          std::memcpy(changed.data() + offset, &value, width);
          fix_checksum(changed);
          const size_t before = allocated_bytes;
          Result<Header> read = read_header(changed, {});
          ASSERT_LT(allocated_bytes - before, 8 * changed.size() + 2048);
          if (!read.ok()) {
            ++refused;
            continue;
          }
          ++accepted;
          ASSERT_EQ(write_header(*read), changed) << "seed " << seed << " offset " << offset;
        }
      }
    }
  }
  EXPECT_GT(accepted, 1000u);
  EXPECT_GT(refused, 1000u);
}

}  // namespace
}  // namespace kvcodec::format
