// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <new>

#include "hevc/bit_writer.h"
#include "unit/hevc/hevc_pictures.h"

namespace {
std::atomic<size_t> allocations{0};
}

// Counts what the program allocates.
// Not inlined: GCC would take malloc and operator delete for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

// Every encoder variant against the reference, byte by byte.
namespace kvcodec::hevc {
namespace {

std::string describe(const EncodeJob& job) {
  return std::to_string(job.picture.width) + "x" + std::to_string(job.picture.height) +
         (job.persistent_rice ? " with" : " without") + " persistent_rice";
}

// All pictures with both settings of persistent_rice, neighbours in one call unlike.
std::vector<EncodeJob> both_settings(const std::vector<TestPicture>& pictures) {
  std::vector<EncodeJob> jobs;
  for (size_t i = 0; i < 2 * pictures.size(); ++i) {
    const TestPicture& picture = pictures[i % pictures.size()];
    jobs.push_back({picture.view(), (i + i / pictures.size()) % 2 != 0, nullptr});
  }
  return jobs;
}

// Encodes into vectors of its own.
template <typename Encode>
std::vector<std::vector<uint8_t>> slices_of(std::vector<EncodeJob>& jobs, const Encode& encode) {
  std::vector<std::vector<uint8_t>> slices(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i].slice_data = &slices[i];
  encode(jobs);
  return slices;
}

void expect_equal(const std::vector<EncodeJob>& jobs,
                  const std::vector<std::vector<uint8_t>>& expected,
                  const std::vector<std::vector<uint8_t>>& found, const std::string& who) {
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_TRUE(found[i] == expected[i])
        << who << ", picture " << i << " of " << jobs.size() << ", " << describe(jobs[i]);
  }
}

void expect_same(std::vector<EncodeJob> jobs) {
  const auto expected =
      slices_of(jobs, [](std::span<EncodeJob> all) { encoder_variants()[0].encode(all); });
  for (const auto& slice : expected) EXPECT_EQ(find_forbidden_bytes(slice), std::nullopt);
  for (const EncoderOps& variant : encoder_variants().subspan(1)) {
    const auto found = slices_of(jobs, [&](std::span<EncodeJob> all) { variant.encode(all); });
    expect_equal(jobs, expected, found, variant.name);
  }
}

void expect_same(const std::vector<TestPicture>& pictures) { expect_same(both_settings(pictures)); }

TEST(EncoderVariants, Noise) {
  std::vector<TestPicture> pictures;
  for (uint64_t seed = 0; seed < 8; ++seed) pictures.push_back(uniform_picture(168, 152, seed));
  double sigma = 0.02;
  for (uint64_t seed = 0; sigma < 150; ++seed, sigma *= 1.3) {
    pictures.push_back(laplacian_picture(232, 160, sigma, seed));
  }
  expect_same(pictures);
}

// Long runs of ones and zeros in the arithmetic code: carries through many bytes, and bytes that
// need emulation prevention.
TEST(EncoderVariants, CarriesAndZeroRuns) {
  std::vector<TestPicture> pictures;
  pictures.reserve(316);
  for (int value = 0; value < 256; ++value) {
    pictures.emplace_back(144, 152, static_cast<uint8_t>(value));
  }
  TestRandom random(7);
  for (int round = 0; round < 60; ++round) {
    TestPicture picture(144, 144);
    const uint8_t low = static_cast<uint8_t>(random.below(256));
    const uint8_t high = static_cast<uint8_t>(random.below(256));
    const uint32_t one_in = 1 + random.below(200);
    for (uint8_t& sample : picture.samples) sample = random.below(one_in) == 0 ? low : high;
    pictures.push_back(std::move(picture));
  }
  expect_same(pictures);
}

TEST(EncoderVariants, SparsePictures) {
  TestRandom random(8);
  std::vector<TestPicture> pictures;
  for (int round = 0; round < 60; ++round) {
    TestPicture picture(200, 176);
    for (uint32_t i = 0; i < 1u << round % 12; ++i) {
      picture.at(random.below(200), random.below(176)) = static_cast<uint8_t>(random.below(256));
    }
    pictures.push_back(std::move(picture));
  }
  expect_same(pictures);
}

// Each half of a sub-block full or sparse, levels small and then large: every path of the level
// coding.
TestPicture mixed_sub_blocks(uint32_t width, uint32_t height, TestRandom& random) {
  TestPicture picture(width, height);
  for (uint32_t y = 0; y < height; y += 4) {
    for (uint32_t x = 0; x < width; x += 4) {
      const uint32_t density = random.below(17), spread = 1u << random.below(8);
      for (uint32_t i = 0; i < 16; ++i) {
        if (random.below(16) >= density) continue;
        const uint32_t magnitude = 1 + random.below(spread);
        picture.at(x + i % 4, y + i / 4) = static_cast<uint8_t>(
            random.below(2) != 0 ? std::min(255u, 128 + magnitude) : 128 - magnitude);
      }
    }
  }
  return picture;
}

TEST(EncoderVariants, MixedSubBlocks) {
  TestRandom random(9);
  std::vector<TestPicture> pictures;
  pictures.reserve(20);
  for (int round = 0; round < 20; ++round) pictures.push_back(mixed_sub_blocks(256, 256, random));
  expect_same(pictures);
}

TEST(EncoderVariants, EverySizeClass) {
  std::vector<TestPicture> pictures;
  for (uint32_t width = 144; width <= 184; width += 8) {
    for (uint32_t height = 144; height <= 184; height += 8) {
      for (uint64_t i = 0; i < 3; ++i) {
        pictures.push_back(laplacian_picture(width, height, 1 + 4 * static_cast<double>(i), i));
      }
    }
  }
  expect_same(pictures);
}

// Some part of it without residual: many units, few, a band, or all.
TestPicture partly_flat(uint32_t width, uint32_t height, TestRandom& random) {
  TestPicture picture = mixed_sub_blocks(width, height, random);
  const uint32_t live = random.below(5);  // of four units
  const uint32_t first = random.below(height), last = first + random.below(height);
  for (uint32_t y = 0; y < height; y += 8) {
    for (uint32_t x = 0; x < width; x += 8) {
      const bool keep = random.below(4) < live && (y < first || y > last || live == 4);
      for (uint32_t i = 0; !keep && i < 64; ++i) picture.at(x + i % 8, y + i / 8) = 128;
    }
  }
  return picture;
}

// Lanes that run out of pictures, pictures that wait for lanes, sizes far apart.
TEST(EncoderVariants, OneToFortyMixedPicturesACall) {
  TestRandom random(11);
  for (uint32_t count = 1; count <= 40; ++count) {
    std::vector<TestPicture> pictures;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t width = 144 + 8 * random.below(7), height = 144 + 8 * random.below(7);
      switch (random.below(4)) {
        case 0: pictures.push_back(partly_flat(width, height, random)); break;
        case 1: pictures.emplace_back(width, height); break;
        case 2: pictures.push_back(mixed_sub_blocks(width, height, random)); break;
        default:
          pictures.push_back(laplacian_picture(width, height, 0.1 * (1 + random.below(300)), i));
      }
    }
    std::vector<EncodeJob> jobs;
    jobs.reserve(count);
    for (const TestPicture& picture : pictures) {
      jobs.push_back({picture.view(), random.below(2) != 0, nullptr});
    }
    expect_same(jobs);
  }
}

// Slices longer than what a lane holds at first, and rows that are not next to each other.
TEST(EncoderVariants, LongSlicesAndStrides) {
  const TestPicture wide = uniform_picture(1024, 640, 3);
  std::vector<EncodeJob> jobs;
  for (uint32_t i = 0; i < 20; ++i) {
    const uint32_t width = 1024 - 24 * i, height = 640 - 16 * i;
    jobs.push_back({{wide.samples.data() + 8 * i + 5, width, height, 1024}, i % 2 != 0, nullptr});
    jobs.back().picture.width -= 8 * i + 8;
  }
  expect_same(jobs);
}

TEST(EncoderVariants, RealKv) {
  std::vector<TestPicture> pictures;
  for (const char* plane : kRealPlanes)
    pictures.push_back(read_picture(std::string(plane) + "_160x192.raw", 160, 192));
  expect_same(pictures);
}

TEST(EncoderVariants, AnyNumberOfThreadsGivesTheSame) {
  TestRandom random(12);
  std::vector<TestPicture> pictures;
  for (uint32_t i = 0; i < 37; ++i) {
    pictures.push_back(partly_flat(144 + 8 * random.below(9), 144 + 8 * random.below(40), random));
  }
  for (size_t count : {0u, 1u, 2u, 5u, 9u, 74u}) {
    std::vector<EncodeJob> jobs = both_settings(pictures);
    jobs.resize(count);
    const auto expected =
        slices_of(jobs, [](std::span<EncodeJob> all) { encoder_variants()[0].encode(all); });
    for (int threads : {0, 1, 2, 3, 8}) {
      const auto found =
          slices_of(jobs, [&](std::span<EncodeJob> all) { encode_pictures(all, threads); });
      expect_equal(jobs, expected, found, std::to_string(threads) + " threads");
    }
  }
}

TEST(EncoderVariants, SteadyStateAllocatesNothing) {
  std::vector<TestPicture> pictures;
  for (uint64_t i = 0; i < 20; ++i) pictures.push_back(uniform_picture(320, 320, i));
  std::vector<EncodeJob> jobs = both_settings(pictures);
  std::vector<std::vector<uint8_t>> slices(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i].slice_data = &slices[i];
  for (const EncoderOps& variant : encoder_variants().subspan(1)) {
    variant.encode(jobs);
    const size_t before = allocations;
    variant.encode(jobs);
    EXPECT_EQ(allocations, before) << variant.name;
  }
  encode_pictures(jobs, 1);
  const size_t before = allocations;
  encode_pictures(jobs, 1);
  EXPECT_EQ(allocations, before);
}

TEST(EncoderVariants, TableHoldsTheBestAndTheReferenceFirst) {
  const auto variants = encoder_variants();
  ASSERT_GE(variants.size(), 2u);
  EXPECT_STREQ(variants[0].name, "reference");
  for (const char* name : {"scalar", "bmi2", "neon", "avx2", "avx512", "avx512vbmi"}) {
    if (std::ranges::none_of(variants,
                             [&](const auto& v) { return std::string(v.name) == name; })) {
      std::cout << "skipped: " << name << ", which this processor does not run\n";
    }
  }
  for (size_t pictures : {0, 1, 2, 3, 4, 16, 1000}) {
    const EncoderOps& best = best_encoder(pictures);
    EXPECT_TRUE(&best > &variants.front() && &best <= &variants.back()) << best.name;
    EXPECT_LE(best.min_pictures, std::max<size_t>(pictures, 1)) << best.name;
  }
}

}  // namespace
}  // namespace kvcodec::hevc
