// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>

#include "hevc/bit_writer.h"
#include "hevc/cabac_encoder.h"
#include "unit/hevc/decode_slices.h"
#include "unit/hevc/hevc_pictures.h"

namespace kvcodec::hevc {
namespace {

constexpr uint8_t kUntouched = 77;

// Decodes wrong data in three jobs: alone, and again between two good ones.
class WrongData : public testing::Test {
 protected:
  // Whether it was refused. Whatever it is: same answer every time, errors are `corrupt`, and good
  // pictures around it are not harmed.
  bool refused(const std::vector<uint8_t>& slice) {
    std::vector<TestPicture> targets(4, TestPicture(144, 144, kUntouched));
    std::vector<DecodeJob> jobs = {new_job(targets[0], slice), new_job(targets[1], good_),
                                   new_job(targets[2], slice), new_job(targets[3], good_)};
    decoder_->decode(std::span(jobs).first(1));
    decoder_->decode(std::span(jobs).subspan(1));
    EXPECT_EQ(targets[1].samples, picture_.samples) << message(jobs[1].status);
    EXPECT_EQ(targets[3].samples, picture_.samples) << message(jobs[3].status);
    EXPECT_EQ(message(jobs[0].status), message(jobs[2].status));
    if (jobs[0].status.ok()) {
      EXPECT_EQ(targets[0].samples, targets[2].samples);
      return false;
    }
    EXPECT_EQ(jobs[0].status.error().code, ErrorCode::corrupt) << message(jobs[0].status);
    return true;
  }

  const TestPicture picture_ = laplacian_picture(144, 144, 2, 1);
  const std::vector<uint8_t> good_ = encode(picture_);
  std::unique_ptr<Decoder> decoder_ = new_decoder();
};

TEST_F(WrongData, IsNotTheTestsFault) { EXPECT_FALSE(refused(good_)); }

TEST_F(WrongData, Empty) {
  EXPECT_TRUE(refused({}));
  TestPicture target(144, 144);
  DecodeJob job = new_job(target, {});
  decoder_->decode(std::span(&job, 1));
  EXPECT_EQ(message(job.status), "slice data: expected 1 to 153612 bytes, found 0");
}

TEST_F(WrongData, Truncated) {
  for (size_t length = 1; length < good_.size(); length += 1 + length / 16) {
    SCOPED_TRACE(length);
    refused({good_.begin(), good_.begin() + static_cast<ptrdiff_t>(length)});
  }
}

TEST_F(WrongData, FlippedBits) {
  TestRandom random(2);
  for (int i = 0; i < 150; ++i) {
    std::vector<uint8_t> slice = good_;
    const uint32_t bit = random.below(static_cast<uint32_t>(slice.size() * 8));
    SCOPED_TRACE(bit);
    slice[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    refused(slice);
  }
}

TEST_F(WrongData, Garbage) {
  TestRandom random(4);
  for (const size_t size : {1u, 2u, 100u, 5000u, 153612u}) {
    std::vector<uint8_t> slice(size);
    for (uint8_t& byte : slice) byte = static_cast<uint8_t>(1 + random.below(255));
    SCOPED_TRACE(size);
    refused(slice);
    std::ranges::fill(slice, uint8_t{0xff});
    refused(slice);
  }
}

TEST_F(WrongData, LargerThanAnyPicture) {
  EXPECT_TRUE(refused(std::vector<uint8_t>(153613, 1)));
  EXPECT_TRUE(refused(std::vector<uint8_t>(50 << 20, 1)));
}

TEST_F(WrongData, OtherNalUnitsInside) {
  // A stream of another size must not reach libavcodec through the slice data.
  std::vector<uint8_t> slice = good_;
  const std::vector<uint8_t> other = stream_start({8192, 8192, false});
  slice.insert(slice.end(), other.begin(), other.end());
  slice.resize(150000);
  EXPECT_TRUE(refused(slice));
  slice = good_;
  slice[100] = slice[101] = 0;
  slice[102] = 1;
  EXPECT_TRUE(refused(slice));
  TestPicture target(144, 144);
  DecodeJob job = new_job(target, slice);
  decoder_->decode(std::span(&job, 1));
  EXPECT_EQ(message(job.status), "slice data, offset 100: bytes that no NAL unit may hold there");
}

// A slice of fewer blocks than the picture has.
TEST_F(WrongData, SliceThatStopsEarly) {
  TestPicture target(288, 288, kUntouched);
  DecodeJob job = new_job(target, good_);
  decoder_->decode(std::span(&job, 1));
  ASSERT_FALSE(job.status.ok());
  EXPECT_EQ(message(job.status),
            "slice data, block 24 of 81: end_of_slice_segment_flag: expected 0, found 1");
}

// libavcodec does not notice that. What is missing must be 128, never samples of a picture decoded
// before.
TEST_F(WrongData, LibavcodecShowsNothingOfOtherPictures) {
  const auto general = create_general_decoder(1);
  ASSERT_TRUE(general.ok());
  const std::vector<uint8_t> other = encode(TestPicture(288, 288, 201));
  TestPicture target(288, 288, kUntouched);
  for (int i = 0; i < 4; ++i) {
    TestPicture decoded(288, 288);
    std::vector<DecodeJob> jobs = {new_job(decoded, other), new_job(decoded, other),
                                   new_job(target, good_)};
    (*general)->decode(jobs);
    ASSERT_TRUE(jobs[1].status.ok()) << message(jobs[1].status);
    if (!jobs[2].status.ok()) continue;  // a libavcodec that does notice
    for (uint32_t y = 100; y < 288; ++y) {
      for (uint32_t x = 0; x < 288; ++x) ASSERT_EQ(target.at(x, y), 128) << x << ", " << y;
    }
  }
}

// An intra coding unit without residual in every block of a P slice: H.265, but nothing that our
// encoder writes.
std::vector<uint8_t> intra_slice(uint32_t blocks) {
  std::vector<uint8_t> slice;
  CabacEncoder cabac(SliceType::p, slice);
  for (uint32_t i = 0; i < blocks; ++i) {
    cabac.put(kCuTransquantBypass, true);
    cabac.put(kCuSkip, false);
    cabac.put(kPredMode, true);
    cabac.put(kPartMode, true);  // 2Nx2N
    cabac.put(kPrevIntraLumaPred, true);
    cabac.put_bypass_bits(0b10, 2);      // mpm_idx 1: DC
    cabac.put(kIntraChromaPred, false);  // as luma
    cabac.put(kCbfChroma, false);
    cabac.put(kCbfChroma, false);
    cabac.put(kCbfLuma, false);
    cabac.put_terminate(i + 1 == blocks);
  }
  cabac.finish();
  insert_emulation_prevention(slice, 0);
  return slice;
}

TEST(Decoder, GivesWhatItDoesNotKnowToLibavcodec) {
  const std::vector<uint8_t> slice = intra_slice(25);
  for (const DecoderOps& variant : decoder_variants()) {
    const std::vector<Slice> slices = {{{160, 160, false}, slice}};
    EXPECT_EQ(decode_slices(variant, slices)[0].fault, (SliceFault{SliceFaultKind::general, 0}))
        << variant.name;
  }
  const TestPicture picture = laplacian_picture(160, 160, 2, 1);
  const std::vector<uint8_t> ours = encode(picture);
  TestPicture first(160, 160, kUntouched), second(160, 160, kUntouched);
  std::vector<DecodeJob> jobs = {new_job(first, slice), new_job(second, ours)};
  new_decoder()->decode(jobs);
  ASSERT_TRUE(jobs[0].status.ok()) << message(jobs[0].status);
  ASSERT_TRUE(jobs[1].status.ok()) << message(jobs[1].status);
  EXPECT_EQ(first.samples, TestPicture(160, 160, 128).samples);
  EXPECT_EQ(second.samples, picture.samples);
}

TEST(Decoder, RefusesJobsThatMakeNoSense) {
  const auto decoder = new_decoder();
  TestPicture target(144, 144, kUntouched);
  const std::vector<uint8_t> slice = encode(TestPicture(144, 144));
  std::vector<DecodeJob> jobs(5, new_job(target, slice));
  jobs[0].parameters.width = 148;
  jobs[1].target.samples = nullptr;
  jobs[2].target.height = 152;
  jobs[3].target.stride = 143;
  jobs[4].parameters = {8192, 8200, false};
  decoder->decode(jobs);
  for (const DecodeJob& job : jobs) {
    ASSERT_FALSE(job.status.ok());
    EXPECT_EQ(job.status.error().code, ErrorCode::invalid_argument);
  }
  EXPECT_EQ(message(jobs[3].status),
            "decode target: expected 144x144, found 144x144 with stride 143");
}

// A slice of other parameters is damage too: it must not crash.
TEST(Decoder, SurvivesSlicesOfOtherParameters) {
  const auto decoder = new_decoder();
  const TestPicture picture = laplacian_picture(256, 256, 9, 1);
  for (const bool rice : {false, true}) {
    const std::vector<uint8_t> slice = encode(picture, rice);
    TestPicture larger(512, 384), smaller(144, 144), other(256, 256), same(256, 256);
    std::vector<DecodeJob> jobs = {new_job(larger, slice, rice), new_job(smaller, slice, rice),
                                   new_job(other, slice, !rice), new_job(same, slice, rice)};
    decoder->decode(jobs);
    EXPECT_TRUE(jobs[3].status.ok()) << message(jobs[3].status);
    EXPECT_EQ(same.samples, picture.samples);
  }
}

// More kinds of streams than idle sessions are kept for, from two callers at once.
TEST(Decoder, IsThreadSafe) {
  const auto decoder = new_decoder(2);
  const auto work = [&](uint64_t seed) {
    for (int round = 0; round < 4; ++round) {
      std::vector<TestPicture> pictures, decoded;
      std::vector<std::vector<uint8_t>> slices;
      for (uint32_t i = 0; i < 24; ++i) {
        const uint32_t side = 144 + 8 * (i % 12);
        pictures.push_back(laplacian_picture(side, 144, 0.5, seed * 1000 + i));
        decoded.emplace_back(side, 144, kUntouched);
        slices.push_back(encode(pictures.back(), i % 2 != 0));
      }
      std::vector<DecodeJob> jobs;
      for (uint32_t i = 0; i < 24; ++i) jobs.push_back(new_job(decoded[i], slices[i], i % 2 != 0));
      decoder->decode(jobs);
      for (uint32_t i = 0; i < 24; ++i) {
        EXPECT_TRUE(jobs[i].status.ok()) << message(jobs[i].status);
        EXPECT_EQ(decoded[i].samples, pictures[i].samples);
      }
    }
  };
  std::jthread other(work, 1);
  work(2);
}

// Callers with few pictures each share two threads: all of them get theirs.
TEST(Decoder, SharesItsThreadsAmongCallers) {
  const auto decoder = new_decoder(2);
  const auto work = [&](uint64_t seed) {
    for (int round = 0; round < 6; ++round) {
      std::vector<TestPicture> pictures, decoded;
      std::vector<std::vector<uint8_t>> slices;
      for (uint32_t i = 0; i < 1 + seed; ++i) {
        pictures.push_back(laplacian_picture(144 + 8 * i, 160, 3, seed * 1000 + i));
        decoded.emplace_back(144 + 8 * i, 160, kUntouched);
        slices.push_back(encode(pictures.back()));
      }
      std::vector<DecodeJob> jobs;
      for (size_t i = 0; i < slices.size(); ++i) jobs.push_back(new_job(decoded[i], slices[i]));
      decoder->decode(jobs, 1 + static_cast<int>(seed) % 2);
      for (size_t i = 0; i < jobs.size(); ++i) {
        EXPECT_TRUE(jobs[i].status.ok()) << message(jobs[i].status);
        EXPECT_EQ(decoded[i].samples, pictures[i].samples);
      }
    }
  };
  std::vector<std::jthread> callers;
  for (uint64_t seed = 0; seed < 7; ++seed) callers.emplace_back(work, seed);
}

TEST(Decoder, NoJobsIsFine) { new_decoder()->decode({}); }

}  // namespace
}  // namespace kvcodec::hevc
