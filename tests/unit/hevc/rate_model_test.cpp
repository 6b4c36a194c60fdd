// SPDX-License-Identifier: Apache-2.0
#include "hevc/rate_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hevc/cabac_encoder.h"
#include "hevc_pictures.h"

namespace kvcodec::hevc {
namespace {

MagnitudeCounts magnitudes(const TestPicture& picture) {
  MagnitudeCounts counts{};
  for (uint8_t sample : picture.samples) ++counts[static_cast<size_t>(std::abs(sample - 128))];
  return counts;
}

// Estimate over coded size, less 1, for both settings.
void expect_close(const TestPicture& picture, double tolerance, const std::string& what) {
  const Rates estimated = picture_bytes(picture.view());
  const auto plain = static_cast<double>(encode(picture, false).size());
  const auto rice = static_cast<double>(encode(picture, true).size());
  EXPECT_NEAR(estimated.plain / plain, 1, tolerance) << what;
  EXPECT_NEAR(estimated.rice / rice, 1, tolerance) << what << ", persistent_rice";
}

TEST(RateModel, RealKvWithinTwoPercent) {
  for (const char* plane : {"exact_key", "exact_value", "int8_key", "int8_value"})
    expect_close(read_picture(std::string(plane) + "_160x192.raw", 160, 192), 0.02, plane);
}

TEST(RateModel, IndependentSamplesWithinTwoPercent) {
  uint64_t seed = 1;
  for (double sigma = 0.35; sigma < 60; sigma *= 1.5) {
    const TestPicture picture = laplacian_picture(512, 512, sigma, seed++);
    expect_close(picture, 0.02, "sigma " + std::to_string(sigma));
    // Such a picture is what sample_bits() is about.
    const Rates bits = sample_bits(magnitudes(picture));
    const double coded = 8.0 * static_cast<double>(encode(picture, false).size()) / (512.0 * 512);
    EXPECT_NEAR(bits.plain / coded, 1, 0.02) << sigma;
  }
}

TEST(RateModel, MixedSpreadsWithinFourPercent) {
  // Bands of unlike spread: what one histogram of the picture would miss by a third.
  TestPicture picture(320, 640);
  for (uint32_t band = 0; band < 10; ++band) {
    const TestPicture part = laplacian_picture(320, 64, 0.1 * std::pow(1.9, band), band);
    std::copy(part.samples.begin(), part.samples.end(),
              picture.samples.begin() + band * part.samples.size());
  }
  expect_close(picture, 0.04, "bands");
  const double coded = 8.0 * static_cast<double>(encode(picture, false).size()) / (320.0 * 640);
  EXPECT_GT(sample_bits(magnitudes(picture)).plain / coded, 1.1);
}

TEST(RateModel, SparseAndEmptyPictures) {
  const TestPicture empty(1024, 512);
  EXPECT_LT(picture_bytes(empty.view()).plain, 16);
  EXPECT_LT(encode(empty).size(), 16u);
  TestRandom random(3);
  for (uint32_t count : {64u, 512u, 4096u}) {
    TestPicture picture(1024, 512);
    for (uint32_t i = 0; i < count; ++i)
      picture.at(random.below(1024), random.below(512)) = random.below(2) != 0 ? 127 : 129;
    expect_close(picture, 0.35, std::to_string(count));
  }
  EXPECT_EQ(sample_bits(MagnitudeCounts{}).best(), 0);
}

TEST(RateModel, ChoosesTheSettingThatIsSmaller) {
  for (double sigma : {0.5, 1.0, 8.0, 16.0, 40.0}) {
    const TestPicture picture = laplacian_picture(320, 320, sigma, 5);
    const Rates estimated = picture_bytes(picture.view());
    const auto plain = static_cast<double>(encode(picture, false).size());
    const auto rice = static_cast<double>(encode(picture, true).size());
    const double chosen = estimated.rice < estimated.plain ? rice : plain;
    EXPECT_LE(chosen, std::min(plain, rice) * 1.001) << sigma;
  }
}

TEST(RateModel, NoisyPicturesCostMore) {
  double last = 0;
  for (double sigma = 0.1; sigma < 100; sigma *= 1.3) {
    const double bytes = picture_bytes(laplacian_picture(256, 256, sigma, 9).view()).best();
    EXPECT_GT(bytes, last) << sigma;
    last = bytes;
  }
}

TEST(RateModel, BinsCostWhatTheArithmeticEncoderTakes) {
  TestRandom random(17);
  for (uint32_t ones : {1u, 4u, 13u, 32u, 50u, 64u}) {  // of 128
    std::vector<uint8_t> bytes;
    CabacEncoder cabac(SliceType::p, bytes);
    constexpr uint32_t kBins = 400000;
    for (uint32_t i = 0; i < kBins; ++i) cabac.put(kSignificant, random.below(128) < ones);
    cabac.put_terminate(true);
    cabac.finish();
    const double taken = 8.0 * static_cast<double>(bytes.size()) / kBins;
    // Of rare bins ranges are not spread as the table takes them to be.
    EXPECT_NEAR(context_bin_bits(ones / 128.0) / taken, 1, ones < 8 ? 0.04 : 0.005) << ones;
    EXPECT_EQ(context_bin_bits(ones / 128.0), context_bin_bits(1 - ones / 128.0));
  }
}

}  // namespace
}  // namespace kvcodec::hevc
