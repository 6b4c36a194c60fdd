// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "hevc/persistent_rice.h"
#include "unit/hevc/hevc_pictures.h"

// Planes of a real cache: data/README.md.
namespace kvcodec::hevc {
namespace {

class RealKv : public testing::TestWithParam<const char*> {
 protected:
  TestPicture picture_ = read_picture(GetParam(), 160, 192);
};
INSTANTIATE_TEST_SUITE_P(Planes, RealKv,
                         testing::Values("exact_key_160x192.raw", "exact_value_160x192.raw",
                                         "int8_key_160x192.raw", "int8_value_160x192.raw"),
                         [](const auto& test) {
                           const std::string name = test.param;
                           return name.substr(0, name.rfind('_'));
                         });

TEST_P(RealKv, RoundTrips) {
  const auto decoder = new_decoder();
  for (const bool rice : {false, true}) expect_round_trip(*decoder, picture_, rice);
}

// Keys and values of a tier together. hevc_bench has whole pictures of chunks: 1.03 to 1.06 each.
TEST(RealKvSize, IsWithin6PercentOfEntropy) {
  for (const std::string tier : {"exact", "int8"}) {
    double bits = 0, entropy = 0;
    for (const char* kind : {"_key_160x192.raw", "_value_160x192.raw"}) {
      const TestPicture picture = read_picture(tier + kind, 160, 192);
      const bool rice = persistent_rice_pays(picture.view());
      bits += 8.0 * static_cast<double>(encode(picture, rice).size());
      entropy += entropy_bits(picture.samples);
    }
    EXPECT_LE(bits, 1.06 * entropy) << tier;
  }
}

TEST_P(RealKv, RiceAdaptationIsChosenWhereItPays) {
  const bool smaller = encode(picture_, true).size() < encode(picture_, false).size();
  EXPECT_EQ(persistent_rice_pays(picture_.view()), smaller);
}

TEST(PersistentRice, PaysFromAMeanMagnitudeOf3) {
  TestPicture picture(160, 144, 131);
  EXPECT_FALSE(persistent_rice_pays(picture.view()));
  picture.at(7, 5) = 124;
  EXPECT_TRUE(persistent_rice_pays(picture.view()));
  picture.at(8, 5) = 128;
  EXPECT_FALSE(persistent_rice_pays(picture.view()));
}

// No harm where it is chosen or left out, over the whole range of spreads.
TEST(PersistentRice, ChoiceIsNeverFarFromTheBest) {
  for (double sigma = 0.5; sigma < 60; sigma *= 1.25) {
    const TestPicture picture = laplacian_picture(160, 160, sigma, 1);
    const double off = static_cast<double>(encode(picture, false).size());
    const double on = static_cast<double>(encode(picture, true).size());
    const double chosen = persistent_rice_pays(picture.view()) ? on : off;
    EXPECT_LE(chosen, 1.004 * std::min(on, off)) << sigma;
  }
}

}  // namespace
}  // namespace kvcodec::hevc
