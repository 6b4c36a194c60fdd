// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "unit/hevc/hevc_pictures.h"

// Everything that the encoder writes, libavcodec reads back bit by bit.
namespace kvcodec::hevc {
namespace {

class RoundTrip : public testing::TestWithParam<bool> {
 protected:
  void expect(const TestPicture& picture) { expect_round_trip(*decoder_, picture, GetParam()); }
  std::unique_ptr<Decoder> decoder_ = new_decoder();
};
INSTANTIATE_TEST_SUITE_P(Rice, RoundTrip, testing::Bool(),
                         [](const auto& test) { return test.param ? "persistent" : "plain"; });

TEST_P(RoundTrip, UniformNoise) {
  for (uint64_t seed = 0; seed < 4; ++seed) expect(uniform_picture(160, 144, seed));
}

TEST_P(RoundTrip, LaplacianNoise) {
  for (const double sigma : {0.1, 0.3, 0.6, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0}) {
    SCOPED_TRACE(sigma);
    expect(laplacian_picture(256, 192, sigma, 5));
  }
}

TEST_P(RoundTrip, ConstantPictures) {
  for (const int value : {0, 1, 127, 128, 129, 254, 255}) {
    SCOPED_TRACE(value);
    expect(TestPicture(152, 144, static_cast<uint8_t>(value)));
  }
}

TEST_P(RoundTrip, ExtremeCheckerboards) {
  for (const uint32_t size : {1u, 2u, 4u, 32u}) {
    TestPicture picture(176, 144);
    for (uint32_t y = 0; y < picture.height; ++y) {
      for (uint32_t x = 0; x < picture.width; ++x) {
        picture.at(x, y) = (x / size + y / size) % 2 != 0 ? 255 : 0;
      }
    }
    expect(picture);
  }
}

TEST_P(RoundTrip, LevelsOfEveryMagnitude) {
  TestPicture picture(256, 144);
  for (size_t i = 0; i < picture.samples.size(); ++i) picture.samples[i] = static_cast<uint8_t>(i);
  expect(picture);
  // Small levels, then a large one where the Rice parameter is still low.
  for (size_t i = 0; i < picture.samples.size(); ++i) {
    picture.samples[i] = static_cast<uint8_t>(i % 16 == 7 ? i / 16 : 127 + i % 3);
  }
  expect(picture);
}

TEST_P(RoundTrip, SpikesInCorners) {
  const uint32_t width = 152, height = 168;
  for (const auto& [x, y] : {std::pair(0u, 0u), std::pair(width - 1, 0u), std::pair(0u, height - 1),
                             std::pair(width - 1, height - 1)}) {
    for (const int value : {0, 129, 255}) {
      TestPicture picture(width, height);
      picture.at(x, y) = static_cast<uint8_t>(value);
      expect(picture);
    }
  }
}

// 1,024 pictures' worth of spikes in one: block n of the picture has its spike at position n, so
// that every last position, sub-block and 4x4 position occurs alone.
TEST_P(RoundTrip, SpikeAtEveryPositionOfABlock) {
  for (const int value : {127, 255}) {
    TestPicture picture(1024, 1024);
    for (uint32_t block = 0; block < 1024; ++block) {
      picture.at(block % 32 * 32 + block % 32, block / 32 * 32 + block / 32) =
          static_cast<uint8_t>(value);
    }
    expect(picture);
  }
}

TEST_P(RoundTrip, SkippedBlocksBesideCodedOnes) {
  TestRandom random(9);
  for (const uint32_t coded_of_8 : {1u, 4u, 7u}) {
    TestPicture picture = laplacian_picture(424, 328, 3, coded_of_8);
    for (uint32_t y = 0; y < picture.height; y += 32) {
      for (uint32_t x = 0; x < picture.width; x += 32) {
        if (random.below(8) < coded_of_8) continue;
        for (uint32_t i = y; i < std::min(y + 32, picture.height); ++i) {
          for (uint32_t j = x; j < std::min(x + 32, picture.width); ++j) picture.at(j, i) = 128;
        }
      }
    }
    expect(picture);
  }
}

TEST_P(RoundTrip, Sizes) {
  const std::pair<uint32_t, uint32_t> sizes[] = {{144, 144},  {152, 144},  {144, 152}, {160, 168},
                                                 {184, 200},  {328, 152},  {200, 776}, {8192, 144},
                                                 {144, 8192}, {1000, 520}, {256, 1920}};
  for (const auto& [width, height] : sizes) {
    expect(laplacian_picture(width, height, 1.5, width + height));
  }
}

TEST_P(RoundTrip, LargestPicture) {
  TestPicture picture(8192, 8192);
  TestRandom random(3);
  for (int i = 0; i < 2000; ++i) {
    picture.at(random.below(8192), random.below(8192)) = static_cast<uint8_t>(random.below(256));
  }
  for (const uint32_t x : {0u, 8191u}) {
    for (const uint32_t y : {0u, 8191u}) picture.at(x, y) = 200;
  }
  expect(picture);
}

TEST_P(RoundTrip, RowsWithAStride) {
  const TestPicture all = uniform_picture(512, 160, 11);
  const PictureView part{all.samples.data() + 40, 248, 160, 512};
  const StreamParameters parameters{248, 160, GetParam()};
  std::vector<uint8_t> slice;
  best_encoder().encode(parameters, std::span(&part, 1), std::span(&slice, 1));
  std::vector<uint8_t> decoded(size_t{300} * 160, 9);
  DecodeJob job{parameters, slice, {decoded.data() + 5, 248, 160, 300}, ok_status()};
  decoder_->decode(std::span(&job, 1));
  ASSERT_TRUE(job.status.ok()) << message(job.status);
  for (uint32_t y = 0; y < 160; ++y) {
    for (uint32_t x = 0; x < 300; ++x) {
      const bool inside = x >= 5 && x < 253;
      const uint8_t expected = inside ? all.samples[y * 512 + 40 + x - 5] : 9;
      ASSERT_EQ(decoded[y * 300 + x], expected) << x << ", " << y;
    }
  }
}

TEST_P(RoundTrip, MorePicturesThanOneStartAllows) {
  constexpr size_t kCount = kMaxPicturesPerStart + 20;
  std::vector<TestPicture> pictures, decoded;
  std::vector<std::vector<uint8_t>> slices;
  for (size_t i = 0; i < kCount; ++i) {
    pictures.push_back(laplacian_picture(144, 144, 0.3, i));
    decoded.emplace_back(144, 144, 3);
    slices.push_back(encode(pictures[i], GetParam()));
  }
  std::vector<DecodeJob> jobs;
  for (size_t i = 0; i < kCount; ++i) jobs.push_back(new_job(decoded[i], slices[i], GetParam()));
  decoder_->decode(jobs);
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(jobs[i].status.ok()) << i << ": " << message(jobs[i].status);
    ASSERT_EQ(decoded[i].samples, pictures[i].samples) << i;
  }
}

// The worst samples for size: every level large, at the lowest Rice parameters.
TEST_P(RoundTrip, SliceDataStaysBelowItsBound) {
  TestPicture picture(144, 144);
  for (size_t i = 0; i < picture.samples.size(); ++i) {
    picture.samples[i] = static_cast<uint8_t>(i % 2 != 0 ? 0 : 255);
  }
  const size_t bytes = encode(picture, GetParam()).size();
  EXPECT_LE(bytes, max_slice_data_bytes(picture.parameters(GetParam())));
  EXPECT_GT(bytes, picture.samples.size());  // the bound is needed: this is above raw
}

TEST(Encoder, ReusesTheCallersMemory) {
  const TestPicture first = uniform_picture(160, 160, 1),
                    second = laplacian_picture(160, 160, 1, 2);
  for (const EncoderOps& encoder : encoder_variants()) {
    std::vector<uint8_t> slice = encode(first, false, encoder);
    const uint8_t* memory = slice.data();
    const PictureView view = second.view();
    encoder.encode(second.parameters(), std::span(&view, 1), std::span(&slice, 1));
    EXPECT_EQ(slice, encode(second, false, encoder));
    EXPECT_EQ(slice.data(), memory) << encoder.name;
  }
}

}  // namespace
}  // namespace kvcodec::hevc
