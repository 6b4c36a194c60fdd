// SPDX-License-Identifier: Apache-2.0
#include "hevc/cuda_encoder.h"

#include <thread>

#include "unit/hevc/hevc_pictures.h"

namespace kvcodec::hevc {
namespace {

class CudaEncoderTest : public testing::Test {
 protected:
  void SetUp() override {
    auto encoder = CudaEncoder::create();
    if (!encoder.ok()) {
      ASSERT_EQ(encoder.error().code, ErrorCode::unsupported) << encoder.error().message;
      GTEST_SKIP() << encoder.error().message;
    }
    encoder_ = *std::move(encoder);
  }

  // All pictures in one call, each with and without persistent_rice, against the reference.
  static void expect_reference(CudaEncoder& encoder, const std::vector<TestPicture>& pictures) {
    std::vector<std::vector<uint8_t>> expected(2 * pictures.size()), found(expected.size());
    std::vector<EncodeJob> jobs, reference;
    for (size_t i = 0; i < expected.size(); ++i) {
      const TestPicture& picture = pictures[i / 2];
      jobs.push_back({picture.view(), i % 2 == 1, &found[i]});
      reference.push_back({picture.view(), i % 2 == 1, &expected[i]});
    }
    const Status status = encoder.encode(jobs);
    ASSERT_TRUE(status.ok()) << message(status);
    encoder_variants()[0].encode(reference);
    for (size_t i = 0; i < expected.size(); ++i) {
      const TestPicture& picture = pictures[i / 2];
      ASSERT_TRUE(found[i] == expected[i])
          << "picture " << i / 2 << " of " << picture.width << "x" << picture.height << ", rice "
          << i % 2 << ": expected " << expected[i].size() << " bytes, found " << found[i].size();
    }
  }

  std::unique_ptr<CudaEncoder> encoder_;
};

TEST(CudaEncoderCreate, SaysWhatIsMissing) {
  const auto encoder = CudaEncoder::create();
  if (encoder.ok()) return;
  EXPECT_EQ(encoder.error().code, ErrorCode::unsupported);
  EXPECT_FALSE(encoder.error().message.empty());
}

TEST_F(CudaEncoderTest, EverySpreadAndSize) {
  std::vector<TestPicture> pictures;
  for (const double sigma : {0.05, 0.3, 1.0, 2.5, 8.0, 30.0, 90.0})
    pictures.push_back(laplacian_picture(256, 160, sigma, static_cast<uint64_t>(sigma * 100)));
  for (uint32_t side = 144; side <= 184; side += 8) {
    pictures.push_back(laplacian_picture(side, 328 - side, 3, side));
    pictures.push_back(TestPicture(side, 144));
  }
  for (const int value : {0, 1, 127, 129, 255})
    pictures.push_back(TestPicture(168, 152, static_cast<uint8_t>(value)));
  pictures.push_back(laplacian_picture(8192, 144, 2, 3));
  pictures.push_back(laplacian_picture(144, 8192, 20, 4));
  expect_reference(*encoder_, pictures);
}

TEST_F(CudaEncoderTest, RealKv) {
  std::vector<TestPicture> pictures;
  for (const char* name : {"exact_key", "exact_value", "int8_key", "int8_value"})
    pictures.push_back(read_picture(std::string(name) + "_160x192.raw", 160, 192));
  expect_reference(*encoder_, pictures);
}

// Noise is longer coded than plain: coded once more with all the room there can be.
TEST_F(CudaEncoderTest, SlicesLongerThanTheirSamples) {
  std::vector<TestPicture> pictures;
  for (uint32_t i = 0; i < 6; ++i) pictures.push_back(uniform_picture(256, 512, i));
  pictures.push_back(laplacian_picture(256, 512, 1, 9));
  expect_reference(*encoder_, pictures);
}

// More pictures than the memory limit holds at once.
TEST_F(CudaEncoderTest, LittleMemoryManyPictures) {
  const auto encoder = CudaEncoder::create({.max_device_bytes = 2 << 20});
  ASSERT_TRUE(encoder.ok());
  std::vector<TestPicture> pictures;
  for (uint32_t i = 0; i < 150; ++i)
    pictures.push_back(laplacian_picture(144 + 8 * (i % 5), 144 + 8 * (i % 7), 1 + i % 9, i));
  expect_reference(**encoder, pictures);
}

TEST_F(CudaEncoderTest, FromSeveralThreads) {
  std::vector<std::jthread> threads;
  for (uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t round = 0; round < 4; ++round) {
        std::vector<TestPicture> pictures;
        for (uint32_t i = 0; i < 20; ++i)
          pictures.push_back(laplacian_picture(160, 144 + 8 * i, 4, 1000 * t + 50 * round + i));
        expect_reference(*encoder_, pictures);
      }
    });
  }
}

TEST_F(CudaEncoderTest, NothingAndWrongSizes) {
  EXPECT_TRUE(encoder_->encode(std::span<EncodeJob>()).ok());
  const TestPicture picture(144, 144);
  std::vector<uint8_t> slice;
  EncodeJob job = {picture.view(), false, &slice};
  job.picture.width = 136;
  const Status status = encoder_->encode(std::span(&job, 1));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace kvcodec::hevc
