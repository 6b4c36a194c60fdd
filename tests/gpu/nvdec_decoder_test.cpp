// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "gpu/nvdec_fixture.h"

namespace kvcodec::hevc {
namespace {

class NvdecDecoderTest : public NvdecTest {};

TEST_F(NvdecDecoderTest, EverySizeClass) {
  const auto decoder = new_nvdec_decoder({.sessions = 2, .max_device_bytes = 2u << 30});
  uint64_t seed = 1;
  for (const auto& [width, height] : {std::pair{144u, 144u},
                                      {152u, 144u},
                                      {144u, 160u},
                                      {256u, 256u},
                                      {264u, 200u},
                                      {256u, 1920u},
                                      {1920u, 256u},
                                      {512u, 512u},
                                      {2048u, 2048u},
                                      {4096u, 2304u},
                                      {8192u, 144u},
                                      {144u, 8192u},
                                      {256u, 1928u},
                                      {8192u, 8192u}}) {
    for (const bool rice : {false, true}) {
      expect_round_trip(*decoder, laplacian_picture(width, height, rice ? 9 : 1, ++seed), rice);
    }
  }
}

// One session through sizes that shrink and grow in either direction: a driver that is reconfigured
// upwards hands out surfaces that are too small.
TEST_F(NvdecDecoderTest, SizesGrowWithinTheLargest) {
  const auto decoder = new_nvdec_decoder({.sessions = 1});
  uint64_t seed = 900;
  for (const auto& [width, height] : {std::pair{144u, 640u},
                                      {640u, 144u},
                                      {384u, 384u},
                                      {144u, 144u},
                                      {640u, 640u},
                                      {160u, 640u},
                                      {640u, 160u}}) {
    expect_round_trip(*decoder, laplacian_picture(width, height, 2, ++seed));
  }
}

TEST_F(NvdecDecoderTest, Extremes) {
  const auto decoder = new_nvdec_decoder();
  for (const bool rice : {false, true}) {
    for (const int value : {0, 1, 127, 128, 129, 255}) {
      expect_round_trip(*decoder, TestPicture(256, 192, static_cast<uint8_t>(value)), rice);
    }
    expect_round_trip(*decoder, uniform_picture(256, 512, 3), rice);
    TestPicture lonely(512, 512);
    lonely.at(511, 511) = 0;
    expect_round_trip(*decoder, lonely, rice);
  }
}

TEST_F(NvdecDecoderTest, RealKv) {
  const auto decoder = new_nvdec_decoder();
  for (const char* name : {"exact_key_160x192.raw", "exact_value_160x192.raw",
                           "int8_key_160x192.raw", "int8_value_160x192.raw"}) {
    for (const bool rice : {false, true}) {
      expect_round_trip(*decoder, read_picture(name, 160, 192), rice);
    }
  }
}

// Sizes change from picture to picture, so sessions are reconfigured all the time, from several
// threads; every picture must be its own.
TEST_F(NvdecDecoderTest, MixedSizesFromSeveralThreads) {
  const auto decoder = new_nvdec_decoder();
  const uint32_t sides[] = {144, 160, 256, 384, 640};
  std::vector<TestPicture> pictures;
  std::vector<std::vector<uint8_t>> slices;
  TestRandom random(5);
  for (int i = 0; i < 120; ++i) {
    pictures.push_back(
        laplacian_picture(sides[random.below(5)], sides[random.below(5)], 2, 100 + i));
    slices.push_back(encode(pictures.back(), i % 2 == 1));
  }
  std::vector<std::jthread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      TestRandom order(t);
      for (int round = 0; round < 6; ++round) {
        std::vector<size_t> chosen;
        std::vector<TestPicture> targets;
        for (int i = 0; i < 30; ++i) chosen.push_back(order.below(120));
        for (size_t i : chosen) targets.emplace_back(pictures[i].width, pictures[i].height, 77);
        std::vector<DecodeJob> jobs;
        for (size_t i = 0; i < chosen.size(); ++i) {
          jobs.push_back(new_job(targets[i], slices[chosen[i]], chosen[i] % 2 == 1));
        }
        decoder->decode(jobs);
        for (size_t i = 0; i < chosen.size(); ++i) {
          EXPECT_EQ(message(jobs[i].status), "ok");
          EXPECT_TRUE(targets[i].samples == pictures[chosen[i]].samples) << chosen[i];
        }
      }
    });
  }
}

// Damaged data: refused or decoded to something of the right size; never a harm to what is decoded
// beside it. Prints how often NVDEC noticed.
TEST_F(NvdecDecoderTest, DamagedData) {
  const auto decoder = new_nvdec_decoder();
  const TestPicture picture = laplacian_picture(256, 512, 2, 1);
  const std::vector<uint8_t> good = encode(picture);
  TestRandom random(7);
  int refused = 0, wrong = 0, intact = 0;
  constexpr int kRounds = 300;
  for (int i = 0; i < kRounds; ++i) {
    std::vector<uint8_t> bad = good;
    if (i % 3 == 0) {
      bad.resize(1 + random.below(static_cast<uint32_t>(bad.size() - 1)));
    } else {
      for (int flips = 1 + i % 4; flips > 0; --flips) {
        const uint32_t bit = random.below(static_cast<uint32_t>(bad.size() * 8));
        bad[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      }
    }
    std::vector<TestPicture> targets(3, TestPicture(256, 512, 77));
    std::vector<DecodeJob> jobs = {new_job(targets[0], good), new_job(targets[1], bad),
                                   new_job(targets[2], good)};
    decoder->decode(jobs);
    ASSERT_EQ(message(jobs[0].status), "ok");
    ASSERT_EQ(message(jobs[2].status), "ok");
    ASSERT_TRUE(targets[0].samples == picture.samples);
    ASSERT_TRUE(targets[2].samples == picture.samples);
    if (!jobs[1].status.ok()) {
      ++refused;
      ASSERT_EQ(jobs[1].status.error().code, ErrorCode::corrupt) << message(jobs[1].status);
      ASSERT_TRUE(targets[1].samples == TestPicture(256, 512, 77).samples);
    } else if (targets[1].samples == picture.samples) {
      ++intact;
    } else {
      ++wrong;
    }
  }
  std::printf("damaged pictures: %d, refused %d, decoded wrong %d, decoded right %d\n", kRounds,
              refused, wrong, intact);
}

TEST_F(NvdecDecoderTest, RefusesWrongCalls) {
  const auto decoder = new_nvdec_decoder();
  const TestPicture picture(144, 144);
  const std::vector<uint8_t> slice = encode(picture);
  TestPicture target(144, 144);
  std::vector<DecodeJob> jobs(4, new_job(target, slice));
  jobs[0].parameters.width = 136;
  jobs[0].target.width = 136;
  jobs[1].target.stride = 100;
  jobs[2].slice_data = {};
  decoder->decode(jobs);
  EXPECT_EQ(jobs[0].status.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(jobs[1].status.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(jobs[2].status.error().code, ErrorCode::corrupt);
  EXPECT_EQ(message(jobs[3].status), "ok");
}

}  // namespace
}  // namespace kvcodec::hevc
