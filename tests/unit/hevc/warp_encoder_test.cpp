// SPDX-License-Identifier: Apache-2.0
#include "hevc/warp_encoder.h"

#include <bit>
#include <span>

#include "hevc/bit_writer.h"
#include "unit/hevc/hevc_pictures.h"

namespace kvcodec::hevc {
namespace {

// A warp on the host: lane after lane.
struct HostWarp {
  template <typename F>
  void each(const F& f) {
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) f(lane);
  }
  template <typename F>
  uint32_t ballot(const F& f) {
    uint32_t mask = 0;
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) mask |= (f(lane) ? 1u : 0u) << lane;
    return mask;
  }
  template <typename F>
  void one(const F& f) {
    f();
  }
};

struct HostOps {
  static constexpr uint32_t big_endian(uint32_t x) { return __builtin_bswap32(x); }
  static constexpr int leading_zeros(uint32_t x) { return std::countl_zero(x); }
  static constexpr int leading_zeros64(uint64_t x) { return std::countl_zero(x); }
};

// Nothing where it does not fit into `words`.
std::vector<uint8_t> encode_on_host(const TestPicture& picture, bool rice, uint32_t words) {
  static const WarpTables tables = make_warp_tables();
  std::vector<uint32_t> out(words);
  WarpState state;
  HostWarp warp;
  const WarpPicture job = {picture.samples.data(), picture.width, picture.width, picture.height,
                           rice ? 1u : 0u,         words,         out.data()};
  const uint32_t bytes = encode_with_warp<HostOps>(warp, job, tables, state);
  if (bytes == kSliceTooLong) return {};
  const auto* from = reinterpret_cast<const uint8_t*>(out.data() + 1);
  std::vector<uint8_t> slice(from, from + bytes);
  insert_emulation_prevention(slice, 0);
  return slice;
}

uint32_t most_words(const TestPicture& picture) {
  return static_cast<uint32_t>(max_slice_data_bytes(picture.parameters(true)) + kWarpBlockBytes) /
         4;
}

void expect_reference(const TestPicture& picture) {
  for (const bool rice : {false, true}) {
    const std::vector<uint8_t> expected = encode(picture, rice, encoder_variants()[0]);
    ASSERT_TRUE(encode_on_host(picture, rice, most_words(picture)) == expected)
        << picture.width << "x" << picture.height << " rice " << rice;
  }
}

// What the device will run, on the host: byte for byte the reference's slices.
TEST(WarpEncoder, GivesTheReferencesBytes) {
  for (const double sigma : {0.1, 0.3, 1.0, 2.5, 8.0, 30.0, 90.0}) {
    SCOPED_TRACE(sigma);
    expect_reference(laplacian_picture(256, 160, sigma, static_cast<uint64_t>(sigma * 10)));
  }
  expect_reference(uniform_picture(256, 288, 5));
  expect_reference(TestPicture(144, 144));
  for (const int value : {0, 1, 127, 129, 255})
    expect_reference(TestPicture(168, 152, static_cast<uint8_t>(value)));
}

TEST(WarpEncoder, EverySizeOfEdge) {
  for (uint32_t width = 144; width <= 184; width += 8) {
    for (uint32_t height = 144; height <= 184; height += 8)
      expect_reference(laplacian_picture(width, height, 3, width * 1000 + height));
  }
}

// One level in an empty picture, at every place of a block and of every size.
TEST(WarpEncoder, LoneLevels) {
  for (uint32_t at = 0; at < 1024; ++at) {
    TestPicture picture(144, 144);
    picture.at(32 + at % 32, 64 + at / 32) = static_cast<uint8_t>(at * 37 % 256);
    expect_reference(picture);
  }
}

TEST(WarpEncoder, RealKv) {
  for (const char* name : {"exact_key", "exact_value", "int8_key", "int8_value"})
    expect_reference(read_picture(std::string(name) + "_160x192.raw", 160, 192));
}

// A slice that is too long for its room is refused, never written beyond it.
TEST(WarpEncoder, TooLittleRoom) {
  const TestPicture picture = uniform_picture(256, 288, 5);
  EXPECT_TRUE(encode_on_host(picture, false, picture.width * picture.height / 4).empty());
  EXPECT_TRUE(encode_on_host(picture, false, kWarpBlockBytes / 4).empty());
}

}  // namespace
}  // namespace kvcodec::hevc
