// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "hevc/decoder.h"
#include "hevc/encoder.h"
#include "hevc/stream.h"

namespace kvcodec::hevc {

// A picture that owns its samples.
struct TestPicture {
  uint32_t width, height;
  std::vector<uint8_t> samples;

  TestPicture(uint32_t w, uint32_t h, uint8_t value = 128)
      : width(w), height(h), samples(size_t{w} * h, value) {}
  PictureView view() const { return {samples.data(), width, height, width}; }
  PictureTarget target() { return {samples.data(), width, height, width}; }
  StreamParameters parameters(bool rice = false) const { return {width, height, rice}; }
  uint8_t& at(uint32_t x, uint32_t y) { return samples[size_t{y} * width + x]; }
};

// SplitMix64: the same numbers with every standard library.
class TestRandom {
 public:
  explicit TestRandom(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(next() % n); }

 private:
  uint64_t state_;
};

inline TestPicture uniform_picture(uint32_t width, uint32_t height, uint64_t seed) {
  TestPicture picture(width, height);
  TestRandom random(seed);
  for (uint8_t& sample : picture.samples) sample = static_cast<uint8_t>(random.next() >> 56);
  return picture;
}

// Two-sided exponential differences from 128 of standard deviation `sigma`, cut at the limits.
inline TestPicture laplacian_picture(uint32_t width, uint32_t height, double sigma, uint64_t seed) {
  TestPicture picture(width, height);
  TestRandom random(seed);
  for (uint8_t& sample : picture.samples) {
    const double unit = (static_cast<double>(random.next() >> 11) + 0.5) / 9007199254740992.0;
    const double centred = unit - 0.5;
    const double magnitude = -sigma / std::sqrt(2.0) * std::log(1 - 2 * std::abs(centred));
    const long value = 128 + std::lround(centred < 0 ? -magnitude : magnitude);
    sample = static_cast<uint8_t>(std::clamp(value, 0L, 255L));
  }
  return picture;
}

// In tests/unit/hevc/data, one for each kind of plane that there is.
inline constexpr const char* kRealPlanes[] = {"exact_key",      "exact_value", "int8_key",
                                              "int8_value",     "high_key",    "balanced_key",
                                              "balanced_value", "small_key",   "small_value"};

inline TestPicture read_picture(const std::string& name, uint32_t width, uint32_t height) {
  TestPicture picture(width, height);
  std::ifstream file(std::string(KVCODEC_HEVC_DATA) + "/" + name, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(bytes.size(), picture.samples.size()) << name;
  std::copy_n(bytes.begin(), std::min(bytes.size(), picture.samples.size()),
              picture.samples.begin());
  return picture;
}

inline std::vector<uint8_t> encode(const TestPicture& picture, bool rice = false,
                                   const EncoderOps& encoder = best_encoder()) {
  const PictureView view = picture.view();
  std::vector<uint8_t> slice;
  encoder.encode(picture.parameters(rice), std::span(&view, 1), std::span(&slice, 1));
  return slice;
}

inline std::unique_ptr<Decoder> new_decoder(int threads = 1) {
  return create_software_decoder(threads);
}

inline DecodeJob new_job(TestPicture& target, const std::vector<uint8_t>& slice,
                         bool rice = false) {
  DecodeJob job;
  job.parameters = target.parameters(rice);
  job.slice_data = slice;
  job.target = target.target();
  return job;
}

inline std::string message(const Status& status) {
  return status.ok() ? "ok" : status.error().message;
}

// Encodes and decodes once; every sample must come back.
inline void expect_round_trip(Decoder& decoder, const TestPicture& picture, bool rice = false) {
  const std::vector<uint8_t> slice = encode(picture, rice);
  ASSERT_FALSE(slice.empty());
  EXPECT_LE(slice.size(), max_slice_data_bytes(picture.parameters(rice)));
  TestPicture decoded(picture.width, picture.height, 77);
  DecodeJob job = new_job(decoded, slice, rice);
  decoder.decode(std::span(&job, 1));
  ASSERT_TRUE(job.status.ok()) << message(job.status);
  const auto difference = std::ranges::mismatch(picture.samples, decoded.samples);
  EXPECT_TRUE(difference.in1 == picture.samples.end())
      << picture.width << "x" << picture.height << (rice ? " with" : " without")
      << " persistent_rice: first wrong sample " << difference.in1 - picture.samples.begin();
}

inline double entropy_bits(const std::vector<uint8_t>& samples) {
  std::vector<double> counts(256);
  for (uint8_t sample : samples) ++counts[sample];
  double bits = 0;
  for (double count : counts) {
    if (count > 0) bits -= count * std::log2(count / static_cast<double>(samples.size()));
  }
  return bits;
}

}  // namespace kvcodec::hevc
