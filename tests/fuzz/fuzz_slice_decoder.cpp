// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "fuzz/require.h"
#include "hevc/bit_writer.h"
#include "hevc/encoder.h"
#include "hevc/stream.h"
#include "unit/hevc/decode_slices.h"

// Three bytes choose the picture's parameters and a variant, the others are the RBSP of its slice
// data, so that nearly every change of them reaches the arithmetic decoder. The reference and two
// variants of our decoder decode it beside a good picture and beside itself with other parameters:
// all find the same fault or the same samples, write nothing outside of the picture, and harm no
// picture beside it. What they accept, libavcodec accepts with the same samples, where it is of a
// size that streams may have; most are smaller, as two coding tree units take every path and no
// time.
using namespace kvcodec;
using namespace kvcodec::hevc;

namespace {

constexpr uint8_t kUntouched = 0xA5;

// A good picture, of other parameters than most.
struct Good {
  std::vector<uint8_t> samples = std::vector<uint8_t>(40 * 32, 128);
  Slice slice{{40, 32, true}, {}};
  Good() {
    for (size_t i = 0; i < samples.size(); i += 1 + i % 7) samples[i] = static_cast<uint8_t>(i * i);
    EncodeJob job{{samples.data(), 40, 32, 40}, true, &slice.data};
    encoder_variants()[0].encode(std::span(&job, 1));
  }
};

struct Decoded {
  SliceFault fault;
  std::vector<uint8_t> memory;  // rows of width + 3
};

std::vector<Decoded> decode(const DecoderOps& variant, std::span<const Slice> slices) {
  std::vector<Decoded> decoded(slices.size());
  std::vector<SliceJob> jobs;
  for (size_t i = 0; i < slices.size(); ++i) {
    const StreamParameters& p = slices[i].parameters;
    const size_t stride = p.width + 3;
    decoded[i].memory.assign(stride * p.height, kUntouched);
    jobs.push_back({p, slices[i].data, {decoded[i].memory.data(), p.width, p.height, stride}, {}});
  }
  KVCODEC_REQUIRE(run_jobs(variant, jobs));
  for (size_t i = 0; i < slices.size(); ++i) {
    decoded[i].fault = jobs[i].fault;
    const size_t width = slices[i].parameters.width;
    for (size_t row = 0; row < slices[i].parameters.height; ++row) {
      const uint8_t* end = &decoded[i].memory[row * (width + 3) + width];
      KVCODEC_REQUIRE(std::count(end, end + 3, kUntouched) == 3);
    }
  }
  return decoded;
}

std::vector<uint8_t> samples_of(const Decoded& decoded, const StreamParameters& parameters) {
  std::vector<uint8_t> samples;
  for (size_t row = 0; row < parameters.height; ++row) {
    const uint8_t* begin = &decoded.memory[row * (parameters.width + 3)];
    samples.insert(samples.end(), begin, begin + parameters.width);
  }
  return samples;
}

// From the third byte: bit 0 persistent_rice, bit 1 a size that streams may have, then the variant.
StreamParameters parameters_of(const uint8_t* data) {
  const bool streams = (data[2] & 2) != 0;
  const uint32_t least = streams ? kMinPictureSide : 8;
  return {least + 8 * (data[0] % 8u), least + 8 * (data[1] % (streams ? 8u : 4u)),
          (data[2] & 1) != 0};
}

// The fastest scalar one, and one of lanes.
std::vector<DecoderOps> variants_of(const uint8_t* data) {
  const DecoderOps* bmi2 = bmi2_decoder();
  const std::span<const DecoderOps> lanes = lane_decoders();
  const size_t choice = data[2] / 4u;
  std::vector<DecoderOps> variants = {bmi2 == nullptr || choice % 8 == 7 ? kScalarDecoder : *bmi2};
  if (!lanes.empty()) variants.push_back(lanes[lanes.size() - 1 - choice % lanes.size()]);
  return variants;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  static const Good good;
  const StreamParameters parameters = parameters_of(data);
  StreamParameters other = parameters;
  other.persistent_rice = !other.persistent_rice;
  std::vector<uint8_t> slice_data(data + 3, data + size);
  while (!slice_data.empty() && slice_data.back() == 0) slice_data.pop_back();
  insert_emulation_prevention(slice_data, 0);
  if (slice_data.empty() || find_forbidden_bytes(slice_data)) return 0;

  const std::vector<Slice> slices = {
      good.slice, {parameters, slice_data}, {other, slice_data}, good.slice};
  const std::vector<Decoded> expected = decode(decoder_variants()[0], slices);
  for (const DecoderOps& variant : variants_of(data)) {
    const std::vector<Decoded> decoded = decode(variant, slices);
    for (size_t i = 0; i < slices.size(); ++i) {
      KVCODEC_REQUIRE(decoded[i].fault == expected[i].fault);
      if (expected[i].fault == SliceFault{})
        KVCODEC_REQUIRE(decoded[i].memory == expected[i].memory);
    }
  }
  for (size_t i = 1; i < 3; ++i) {
    if (expected[i].fault != SliceFault{} || !check_parameters(slices[i].parameters).ok()) continue;
    KVCODEC_REQUIRE(decode_with_libavcodec(slices[i]) ==
                    samples_of(expected[i], slices[i].parameters));
  }
  KVCODEC_REQUIRE(samples_of(expected[0], good.slice.parameters) == good.samples);
  KVCODEC_REQUIRE(samples_of(expected[3], good.slice.parameters) == good.samples);
  return 0;
}
