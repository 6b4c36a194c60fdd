// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "unit/hevc/decode_slices.h"
#include "unit/hevc/hevc_pictures.h"

// Whole HEVC streams, pinned: what our functions write must stay the same byte for byte, and every
// decoder must read it. check_streams.py checks the same files against H.265.
namespace kvcodec::hevc {
namespace {

struct Case {
  const char* name;
  TestPicture picture;
  bool rice;
};

std::vector<Case> cases() {
  return {{"flat_144x144", TestPicture(144, 144), false},
          {"exact_key_160x192", read_picture("exact_key_160x192.raw", 160, 192), false},
          {"int8_value_160x192_rice", read_picture("int8_value_160x192.raw", 160, 192), true},
          {"noise_152x168", uniform_picture(152, 168, 1), false},
          {"sparse_200x176_rice", laplacian_picture(200, 176, 0.2, 2), true},
          {"largest_of_level_6_2", TestPicture(8192, 4352, 128), false},
          {"smallest_of_level_6_3", TestPicture(8192, 4360, 128), true}};
}

std::string path_of(const Case& example) {
  return std::string(KVCODEC_GOLDEN_FOLDER) + "/streams/" + example.name + ".hevc";
}

std::vector<uint8_t> stream_of(const Case& example) {
  const StreamParameters parameters = example.picture.parameters(example.rice);
  std::vector<uint8_t> stream = stream_start(parameters);
  const std::vector<uint8_t> header = picture_header(parameters, 1);
  stream.insert(stream.end(), header.begin(), header.end());
  const std::vector<uint8_t> slice = encode(example.picture, example.rice);
  stream.insert(stream.end(), slice.begin(), slice.end());
  return stream;
}

TEST(GoldenStreams, AreWrittenTheSame) {
  for (const Case& example : cases()) {
    const std::vector<uint8_t> stream = stream_of(example);
    if (std::getenv("KVCODEC_WRITE_STREAMS") != nullptr) {
      std::ofstream(path_of(example), std::ios::binary)
          .write(reinterpret_cast<const char*>(stream.data()),
                 static_cast<std::streamsize>(stream.size()));
    }
    std::ifstream file(path_of(example), std::ios::binary);
    const std::vector<char> pinned{std::istreambuf_iterator<char>(file), {}};
    EXPECT_TRUE(std::ranges::equal(stream, pinned, {}, {}, [](char byte) {
      return static_cast<uint8_t>(byte);
    })) << example.name;
  }
}

TEST(GoldenStreams, AreReadByEveryDecoder) {
  for (const Case& example : cases()) {
    const StreamParameters parameters = example.picture.parameters(example.rice);
    const size_t before = stream_start(parameters).size() + picture_header(parameters, 1).size();
    std::ifstream file(path_of(example), std::ios::binary);
    const std::vector<char> pinned{std::istreambuf_iterator<char>(file), {}};
    ASSERT_GT(pinned.size(), before) << example.name;
    const Slice slice{parameters, {pinned.begin() + static_cast<ptrdiff_t>(before), pinned.end()}};
    for (const DecoderOps& variant : decoder_variants()) {
      EXPECT_TRUE(decode_slices(variant, std::span(&slice, 1))[0].is(example.picture.samples))
          << example.name << " " << variant.name;
    }
    EXPECT_TRUE(decode_with_libavcodec(slice) == example.picture.samples) << example.name;
  }
}

}  // namespace
}  // namespace kvcodec::hevc
