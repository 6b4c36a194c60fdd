// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "hevc/bit_writer.h"
#include "hevc/decoder_variants.h"
#include "unit/hevc/decode_slices.h"
#include "unit/hevc/hevc_pictures.h"

// Every decoder variant against the samples that were encoded, against libavcodec, and where slices
// are malformed against the reference.
namespace kvcodec::hevc {
namespace {

void expect_decodes(const std::vector<TestPicture>& pictures) {
  for (const bool rice : {false, true}) {
    std::vector<Slice> slices;
    for (const TestPicture& picture : pictures) {
      slices.push_back({picture.parameters(rice), encode(picture, rice)});
    }
    for (const DecoderOps& variant : decoder_variants()) {
      const std::vector<DecodedSlice> decoded = decode_slices(variant, slices);
      for (size_t i = 0; i < slices.size(); ++i) {
        EXPECT_TRUE(decoded[i].is(pictures[i].samples))
            << variant.name << (rice ? " with" : " without") << " persistent_rice, picture " << i
            << " of " << slices.size() << ", " << pictures[i].width << "x" << pictures[i].height
            << ": " << decoded[i].what();
      }
    }
    for (size_t i = 0; i < slices.size(); ++i) {
      EXPECT_TRUE(decode_with_libavcodec(slices[i]) == pictures[i].samples) << i;
    }
  }
}

TEST(DecoderVariants, Noise) {
  std::vector<TestPicture> pictures;
  for (uint64_t seed = 0; seed < 4; ++seed) pictures.push_back(uniform_picture(168, 152, seed));
  double sigma = 0.02;
  for (uint64_t seed = 0; sigma < 150; ++seed, sigma *= 1.3) {
    pictures.push_back(laplacian_picture(232, 160, sigma, seed));
  }
  expect_decodes(pictures);
}

// One value everywhere: the longest levels, and long runs of ones and zeros in the code.
TEST(DecoderVariants, OneValueAndTwoValues) {
  std::vector<TestPicture> pictures;
  for (int value = 0; value < 256; ++value) {
    pictures.emplace_back(144, 152, static_cast<uint8_t>(value));
  }
  TestRandom random(7);
  for (int round = 0; round < 40; ++round) {
    TestPicture picture(144, 144);
    const uint8_t low = static_cast<uint8_t>(random.below(256));
    const uint8_t high = static_cast<uint8_t>(random.below(256));
    const uint32_t one_in = 1 + random.below(200);
    for (uint8_t& sample : picture.samples) sample = random.below(one_in) == 0 ? low : high;
    pictures.push_back(picture);
  }
  expect_decodes(pictures);
}

TEST(DecoderVariants, SparsePictures) {
  TestRandom random(8);
  std::vector<TestPicture> pictures;
  for (int round = 0; round < 48; ++round) {
    TestPicture picture(200, 176);
    for (uint32_t i = 0; i < 1u << round % 12; ++i) {
      picture.at(random.below(200), random.below(176)) = static_cast<uint8_t>(random.below(256));
    }
    pictures.push_back(picture);
  }
  expect_decodes(pictures);
}

// One coefficient at each place: every last position, every lonely one.
TEST(DecoderVariants, OneSampleInABlock) {
  std::vector<TestPicture> pictures;
  TestRandom random(10);
  for (uint32_t at = 0; at < 1024; at += 25) {
    TestPicture picture(160, 160);
    for (uint32_t block = 0; block < 25; ++block) {
      const uint32_t place = (at + block) % 1024;
      picture.at(block % 5 * 32 + place % 32, block / 5 * 32 + place / 32) =
          static_cast<uint8_t>(random.below(2) != 0 ? 129 + random.below(127) : random.below(128));
    }
    pictures.push_back(picture);
  }
  expect_decodes(pictures);
}

// Each sub-block full or sparse, levels small and then large: every path of the level coding.
TEST(DecoderVariants, MixedSubBlocks) {
  TestRandom random(9);
  std::vector<TestPicture> pictures;
  for (int round = 0; round < 20; ++round) {
    TestPicture picture(256, 160);
    for (uint32_t y = 0; y < 160; y += 4) {
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
    pictures.push_back(picture);
  }
  expect_decodes(pictures);
}

// Lanes hold pictures of different sizes and kinds, and take the next ones at different times.
TEST(DecoderVariants, SizesMixed) {
  for (const size_t count : {1u, 3u, 5u, 17u, 50u}) {
    std::vector<TestPicture> pictures;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t width = 144 + 8 * (i * 5 % 23), height = 144 + 8 * (i * 7 % 19);
      const double sigmas[] = {0.1, 20, 1.5, 60, 0.6};
      pictures.push_back(laplacian_picture(width, height, sigmas[i % 5], i));
    }
    expect_decodes(pictures);
  }
}

TEST(DecoderVariants, LargestSides) {
  expect_decodes({laplacian_picture(8192, 144, 1.5, 1), laplacian_picture(144, 8192, 9, 2)});
}

// As the fuzzer has them: below what streams may have, so libavcodec is left out.
TEST(DecoderVariants, PicturesOfFewUnits) {
  for (const bool rice : {false, true}) {
    std::vector<TestPicture> pictures;
    std::vector<Slice> slices;
    for (uint32_t i = 0; i < 60; ++i) {
      const double sigmas[] = {0.1, 20, 1.5, 60, 0.6};
      pictures.push_back(laplacian_picture(8 + 8 * (i % 9), 8 + 8 * (i * 5 % 7), sigmas[i % 5], i));
      slices.push_back({pictures.back().parameters(rice), encode(pictures.back(), rice)});
    }
    for (const DecoderOps& variant : decoder_variants()) {
      const std::vector<DecodedSlice> decoded = decode_slices(variant, slices);
      for (size_t i = 0; i < slices.size(); ++i)
        EXPECT_TRUE(decoded[i].is(pictures[i].samples)) << variant.name << " " << i;
    }
  }
}

TEST(DecoderVariants, RealKv) {
  std::vector<TestPicture> pictures;
  for (const char* plane : kRealPlanes)
    pictures.push_back(read_picture(std::string(plane) + "_160x192.raw", 160, 192));
  expect_decodes(pictures);
}

TEST(DecoderVariants, TargetsWithAStrideAreWrittenInsideOnly) {
  const TestPicture picture = laplacian_picture(152, 168, 5, 3);
  const std::vector<uint8_t> slice = encode(picture);
  for (const DecoderOps& variant : decoder_variants()) {
    constexpr size_t kStride = 152 + 9;
    std::vector<uint8_t> memory(kStride * 168, 77);
    std::vector<SliceJob> jobs = {
        {picture.parameters(), slice, {memory.data(), 152, 168, kStride}, {}}};
    run_jobs(variant, jobs);
    ASSERT_EQ(jobs[0].fault, SliceFault{}) << variant.name;
    for (size_t y = 0; y < 168; ++y) {
      for (size_t x = 0; x < kStride; ++x) {
        ASSERT_EQ(memory[y * kStride + x], x < 152 ? picture.samples[y * 152 + x] : 77)
            << variant.name << " " << x << " " << y;
      }
    }
  }
}

// What the reference makes of malformed slices, all variants make of them; what it accepts,
// libavcodec accepts with the same samples.
class Malformed : public testing::Test {
 protected:
  void add(const Slice& good, const std::vector<uint8_t>& data) {
    if (data.empty() || find_forbidden_bytes(data)) return;
    slices_.push_back({good.parameters, data});
  }
  void check() {
    const std::vector<DecodedSlice> expected = decode_slices(decoder_variants()[0], slices_);
    for (const DecoderOps& variant : decoder_variants().subspan(1)) {
      const std::vector<DecodedSlice> decoded = decode_slices(variant, slices_);
      for (size_t i = 0; i < slices_.size(); ++i) {
        EXPECT_EQ(decoded[i].fault, expected[i].fault)
            << variant.name << " " << i << ": " << decoded[i].what() << ", not "
            << expected[i].what();
        if (expected[i].fault == SliceFault{}) {
          EXPECT_TRUE(decoded[i].samples == expected[i].samples) << variant.name << " " << i;
        }
      }
    }
    for (size_t i = 0; i < slices_.size(); ++i) {
      ++faults_[static_cast<size_t>(expected[i].fault.kind)];
      if (expected[i].fault != SliceFault{}) continue;
      EXPECT_TRUE(decode_with_libavcodec(slices_[i]) == expected[i].samples) << i;
    }
    slices_.clear();
  }
  size_t found(SliceFaultKind kind) const { return faults_[static_cast<size_t>(kind)]; }

  std::vector<Slice> slices_;
  size_t faults_[6] = {};
};

std::vector<Slice> good_slices() {
  std::vector<Slice> slices;
  for (const bool rice : {false, true}) {
    for (const TestPicture& picture :
         {laplacian_picture(144, 144, 1.5, 1), laplacian_picture(152, 144, 20, 2),
          laplacian_picture(144, 176, 0.3, 3), TestPicture(144, 144)}) {
      slices.push_back({picture.parameters(rice), encode(picture, rice)});
    }
  }
  return slices;
}

TEST_F(Malformed, FlippedBytes) {
  TestRandom random(2);
  for (const Slice& good : good_slices()) {
    for (int i = 0; i < 60; ++i) {
      std::vector<uint8_t> data = good.data;
      for (uint32_t n = 1 + random.below(3); n > 0; --n) {
        const auto at = random.below(static_cast<uint32_t>(data.size()));
        data[i % 2 != 0 ? at : at % 24] ^= static_cast<uint8_t>(1u << random.below(8));
      }
      add(good, data);
    }
  }
  check();
  EXPECT_GT(found(SliceFaultKind::general), 0u);
  EXPECT_GT(found(SliceFaultKind::ends_early), 0u);
  EXPECT_GT(found(SliceFaultKind::none), 0u);
}

TEST_F(Malformed, Truncated) {
  for (const Slice& good : good_slices()) {
    for (size_t length = 1; length < good.data.size(); length += 1 + length / 8) {
      add(good, {good.data.begin(), good.data.begin() + static_cast<ptrdiff_t>(length)});
    }
  }
  check();
  EXPECT_EQ(found(SliceFaultKind::none), 0u);
}

TEST_F(Malformed, Garbage) {
  TestRandom random(4);
  for (const Slice& good : good_slices()) {
    for (const size_t size : {1u, 2u, 3u, 100u, 5000u}) {
      std::vector<uint8_t> data(size);
      for (uint8_t& byte : data) byte = static_cast<uint8_t>(random.next());
      add(good, data);
      for (const int value : {0x01, 0x55, 0x80, 0xaa, 0xfe, 0xff}) {
        add(good, std::vector<uint8_t>(size, static_cast<uint8_t>(value)));
      }
    }
  }
  check();
}

// A whole slice in a picture with more blocks or fewer.
TEST_F(Malformed, OfAnotherSize) {
  for (const Slice& good : good_slices()) {
    Slice other = good;
    other.parameters.width += 160;
    add(other, good.data);
    other.parameters = {144, 144, !good.parameters.persistent_rice};
    add(other, good.data);
  }
  const TestPicture large = TestPicture(288, 288);
  add({{144, 144, false}, {}}, encode(large));
  check();
  EXPECT_GT(found(SliceFaultKind::stops), 0u);
  EXPECT_GT(found(SliceFaultKind::goes_on), 0u);
}

// After the last block: the stop bit, zeros to the end of the byte, cabac_zero_words (7.3.2.10).
TEST_F(Malformed, Ends) {
  for (const Slice& good : good_slices()) {
    const auto with = [&](const std::vector<uint8_t>& tail) {
      std::vector<uint8_t> data = good.data;
      for (const uint8_t byte : tail) data.push_back(byte);
      return data;
    };
    add(good, with({0x80}));
    add(good, with({0xff}));
    add(good, with({0, 0x80}));
    add(good, with(std::vector<uint8_t>(20000, 0x55)));
    const size_t wrong = slices_.size();
    check();
    EXPECT_EQ(found(SliceFaultKind::trailing), wrong);
    faults_[static_cast<size_t>(SliceFaultKind::trailing)] = 0;

    add(good, with({0, 0, 3}));
    add(good, with({0, 0, 3, 0, 0, 3}));
    std::vector<uint8_t> words(27000);
    for (size_t i = 2; i < words.size(); i += 3) words[i] = 3;
    add(good, with(words));
    const size_t before = found(SliceFaultKind::none);
    check();
    EXPECT_EQ(found(SliceFaultKind::none), before + 3);
  }
}

TEST(DecoderVariants, TableHasTheReferenceFirst) {
  ASSERT_GE(decoder_variants().size(), 2u);
  EXPECT_STREQ(decoder_variants()[0].name, "reference");
}

}  // namespace
}  // namespace kvcodec::hevc
