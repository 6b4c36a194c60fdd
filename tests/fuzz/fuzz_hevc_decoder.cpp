// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "fuzz/require.h"
#include "hevc/decoder.h"
#include "hevc/encoder.h"

// Three bytes choose the picture's parameters, the others are its slice data. Whatever they are,
// the decoder says corrupt or gives samples, writes none outside of the picture; and what it met
// has no effect on the next picture. (Which samples a malformed slice gives is not defined where it
// went to libavcodec, which does not tell where one ends early. A chunk's content checksum refuses
// those.)
using namespace kvcodec;

namespace {

constexpr uint8_t kUntouched = 0xA5;

struct Decoded {
  Status status = ok_status();
  std::vector<uint8_t> memory;  // rows of width + 3
};

Decoded decode(const hevc::StreamParameters& parameters, std::span<const uint8_t> slice_data) {
  static const auto decoder = hevc::create_software_decoder(1);
  Decoded decoded;
  const size_t stride = parameters.width + 3;
  decoded.memory.assign(stride * parameters.height, kUntouched);
  hevc::DecodeJob job;
  job.parameters = parameters;
  job.slice_data = slice_data;
  job.target = {decoded.memory.data(), parameters.width, parameters.height, stride};
  decoder->decode(std::span(&job, 1));
  decoded.status = job.status;
  return decoded;
}

// A picture of these parameters still decodes to its samples.
void check_good_picture(const hevc::StreamParameters& parameters) {
  std::vector<uint8_t> samples(size_t{parameters.width} * parameters.height, 128);
  for (size_t i = 0; i < samples.size(); i += 97) samples[i] = static_cast<uint8_t>(i);
  const hevc::PictureView view = {samples.data(), parameters.width, parameters.height,
                                  parameters.width};
  std::vector<uint8_t> slice_data;
  hevc::best_encoder().encode(parameters, std::span(&view, 1), std::span(&slice_data, 1));
  const Decoded decoded = decode(parameters, slice_data);
  KVCODEC_REQUIRE(decoded.status.ok());
  for (size_t row = 0; row < parameters.height; ++row) {
    KVCODEC_REQUIRE(std::equal(&samples[row * parameters.width],
                               &samples[row * parameters.width] + parameters.width,
                               &decoded.memory[row * (parameters.width + 3)]));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const hevc::StreamParameters parameters = {144 + 8 * (data[0] % 16u), 144 + 8 * (data[1] % 16u),
                                             data[2] % 2 != 0};
  const std::span<const uint8_t> slice_data(data + 3, size - 3);
  const Decoded first = decode(parameters, slice_data);
  if (!first.status.ok()) {
    KVCODEC_REQUIRE(first.status.error().code == ErrorCode::corrupt);
  }
  for (size_t row = 0; row < parameters.height; ++row) {
    const uint8_t* end = &first.memory[row * (parameters.width + 3) + parameters.width];
    KVCODEC_REQUIRE(std::count(end, end + 3, kUntouched) == 3);
  }
  check_good_picture(parameters);
  return 0;
}
