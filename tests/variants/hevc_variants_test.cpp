// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "hevc/bit_writer.h"
#include "unit/hevc/hevc_pictures.h"

// Every encoder variant against the reference, byte by byte.
namespace kvcodec::hevc {
namespace {

void expect_same(const TestPicture& picture) {
  for (const bool rice : {false, true}) {
    const std::vector<uint8_t> expected = encode(picture, rice, encoder_variants()[0]);
    EXPECT_EQ(find_forbidden_bytes(expected), std::nullopt);
    for (const EncoderOps& variant : encoder_variants().subspan(1)) {
      EXPECT_TRUE(encode(picture, rice, variant) == expected)
          << variant.name << (rice ? " with" : " without") << " persistent_rice, " << picture.width
          << "x" << picture.height;
    }
  }
}

TEST(EncoderVariants, Noise) {
  for (uint64_t seed = 0; seed < 8; ++seed) expect_same(uniform_picture(168, 152, seed));
  double sigma = 0.02;
  for (uint64_t seed = 0; sigma < 150; ++seed, sigma *= 1.3) {
    expect_same(laplacian_picture(232, 160, sigma, seed));
  }
}

// Long runs of ones and zeros in the arithmetic code: carries through many bytes, and bytes that
// need emulation prevention.
TEST(EncoderVariants, CarriesAndZeroRuns) {
  for (int value = 0; value < 256; ++value) {
    expect_same(TestPicture(144, 152, static_cast<uint8_t>(value)));
  }
  TestRandom random(7);
  for (int round = 0; round < 60; ++round) {
    TestPicture picture(144, 144);
    const uint8_t low = static_cast<uint8_t>(random.below(256));
    const uint8_t high = static_cast<uint8_t>(random.below(256));
    const uint32_t one_in = 1 + random.below(200);
    for (uint8_t& sample : picture.samples) sample = random.below(one_in) == 0 ? low : high;
    expect_same(picture);
  }
}

TEST(EncoderVariants, SparsePictures) {
  TestRandom random(8);
  for (int round = 0; round < 60; ++round) {
    TestPicture picture(200, 176);
    for (uint32_t i = 0; i < 1u << round % 12; ++i) {
      picture.at(random.below(200), random.below(176)) = static_cast<uint8_t>(random.below(256));
    }
    expect_same(picture);
  }
}

// Each half of a sub-block full or sparse, levels small and then large: every path of the level
// coding.
TEST(EncoderVariants, MixedSubBlocks) {
  TestRandom random(9);
  for (int round = 0; round < 20; ++round) {
    TestPicture picture(256, 256);
    for (uint32_t y = 0; y < 256; y += 4) {
      for (uint32_t x = 0; x < 256; x += 4) {
        const uint32_t density = random.below(17), spread = 1u << random.below(8);
        for (uint32_t i = 0; i < 16; ++i) {
          if (random.below(16) >= density) continue;
          const uint32_t magnitude = 1 + random.below(spread);
          picture.at(x + i % 4, y + i / 4) = static_cast<uint8_t>(
              random.below(2) != 0 ? std::min(255u, 128 + magnitude) : 128 - magnitude);
        }
      }
    }
    expect_same(picture);
  }
}

TEST(EncoderVariants, SizesAndManyPicturesAtOnce) {
  for (uint32_t width = 144; width <= 184; width += 8) {
    for (uint32_t height = 144; height <= 184; height += 8) {
      std::vector<TestPicture> pictures;
      std::vector<PictureView> views;
      for (uint64_t i = 0; i < 3; ++i) {
        pictures.push_back(laplacian_picture(width, height, 1 + 4 * static_cast<double>(i), i));
      }
      for (const TestPicture& picture : pictures) views.push_back(picture.view());
      for (const EncoderOps& variant : encoder_variants()) {
        std::vector<std::vector<uint8_t>> slices(3);
        variant.encode(pictures[0].parameters(), views, slices);
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_TRUE(slices[i] == encode(pictures[i], false, encoder_variants()[0]));
        }
      }
    }
  }
}

TEST(EncoderVariants, RealKv) {
  for (const char* plane : {"exact_key", "exact_value", "int8_key", "int8_value"})
    expect_same(read_picture(std::string(plane) + "_160x192.raw", 160, 192));
}

TEST(EncoderVariants, TableHoldsTheBestAndTheReferenceFirst) {
  ASSERT_GE(encoder_variants().size(), 2u);
  EXPECT_STREQ(encoder_variants()[0].name, "reference");
  EXPECT_TRUE(std::ranges::any_of(encoder_variants(), [](const EncoderOps& variant) {
    return variant.work == best_encoder().work;
  }));
}

}  // namespace
}  // namespace kvcodec::hevc
