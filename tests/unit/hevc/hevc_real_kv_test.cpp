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
INSTANTIATE_TEST_SUITE_P(Planes, RealKv, testing::Values("exact_160x192.raw", "int8_160x192.raw"),
                         [](const auto& test) {
                           const std::string name = test.param;
                           return name.substr(0, name.find('_'));
                         });

TEST_P(RealKv, RoundTrips) {
  const auto decoder = new_decoder();
  for (const bool rice : {false, true}) expect_round_trip(*decoder, picture_, rice);
}

TEST_P(RealKv, SizeIsWithin6PercentOfEntropy) {
  const bool rice = persistent_rice_pays(picture_.view());
  const double bits = 8.0 * static_cast<double>(encode(picture_, rice).size());
  EXPECT_LE(bits, 1.06 * entropy_bits(picture_.samples));
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
