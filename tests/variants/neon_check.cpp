// SPDX-License-Identifier: Apache-2.0
// The NEON encoder and decoder against the references, for a machine that is none: built by
// neon_check.sh with a cross compiler and run in an emulator.
#include <cstdio>

#include "hevc/bit_writer.h"
#include "hevc/encoder.h"
#include "unit/hevc/decode_slices.h"

// From Highway's library, of which there is none for this target: every 64-bit ARM has NEON.
namespace hwy {
int64_t SupportedTargets();
int64_t SupportedTargets() { return int64_t{1} << 28; }
}  // namespace hwy

namespace {

using namespace kvcodec::hevc;

constexpr size_t kPictures = 24;

class Random {
 public:
  uint32_t below(uint32_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33) % n;
  }

 private:
  uint64_t state_ = 1;
};

struct Variants {
  bool same = true, neon = false;
  void add(const char* what, const char* name, size_t lanes, bool is_same) {
    std::printf("%s %s: %s\n", what, name, is_same ? "same" : "DIFFERS");
    same &= is_same;
    neon |= lanes == 4;
  }
  bool good() const { return same && neon; }
};

// The pictures, and the reference's slices of them.
struct Pictures {
  std::vector<std::vector<uint8_t>> samples;
  std::vector<Slice> slices;
  std::vector<EncodeJob> jobs;
};

Pictures make_pictures(Random& random) {
  Pictures pictures{std::vector<std::vector<uint8_t>>(kPictures), std::vector<Slice>(kPictures),
                    std::vector<EncodeJob>(kPictures)};
  for (size_t i = 0; i < kPictures; ++i) {
    const uint32_t width = 144 + 8 * random.below(20), height = 144 + 8 * random.below(20);
    std::vector<uint8_t>& samples = pictures.samples[i];
    samples.resize(size_t{width} * height);
    const uint32_t spread = 1 + (1u << i % 8), one_in = i % 3 == 0 ? 40 : 1;
    for (uint8_t& sample : samples) {
      sample = static_cast<uint8_t>(128 + (random.below(one_in) == 0 ? random.below(spread) : 0) -
                                    spread / 2 / one_in);
    }
    pictures.slices[i].parameters = {width, height, i % 2 != 0};
    pictures.jobs[i] = {
        {samples.data(), width, height, width}, i % 2 != 0, &pictures.slices[i].data};
  }
  encoder_variants()[0].encode(pictures.jobs);
  return pictures;
}

Variants check_encoders(Pictures& pictures) {
  Variants variants;
  for (const EncoderOps& variant : encoder_variants().subspan(1)) {
    std::vector<std::vector<uint8_t>> found(kPictures);
    for (size_t i = 0; i < kPictures; ++i) pictures.jobs[i].slice_data = &found[i];
    variant.encode(pictures.jobs);
    bool same = true;
    for (size_t i = 0; i < kPictures; ++i) same &= found[i] == pictures.slices[i].data;
    variants.add("encoder", variant.name, variant.lanes, same);
  }
  return variants;
}

// The slices as they are, and with a few bits changed.
Variants check_decoders(const Pictures& pictures, Random& random) {
  std::vector<Slice> slices = pictures.slices;
  for (size_t i = 0; i < 4 * kPictures; ++i) {
    Slice slice = pictures.slices[i % kPictures];
    const auto size = static_cast<uint32_t>(slice.data.size());
    for (uint32_t n = 1 + random.below(3); n > 0; --n)
      slice.data[random.below(i % 2 != 0 ? size : std::min(size, 24u))] ^=
          static_cast<uint8_t>(1u << random.below(8));
    if (!find_forbidden_bytes(slice.data)) slices.push_back(std::move(slice));
  }
  const std::vector<DecodedSlice> expected = decode_slices(decoder_variants()[0], slices);
  Variants variants;
  for (const DecoderOps& variant : decoder_variants().subspan(1)) {
    const std::vector<DecodedSlice> found = decode_slices(variant, slices);
    bool same = found.size() == slices.size();
    for (size_t i = 0; same && i < slices.size(); ++i) {
      same = found[i].fault == expected[i].fault &&
             (found[i].fault != SliceFault{} || found[i].samples == expected[i].samples) &&
             (i >= kPictures || found[i].is(pictures.samples[i]));
    }
    variants.add("decoder", variant.name, static_cast<size_t>(variant.lanes), same);
  }
  return variants;
}

}  // namespace

int main() {
  Random random;
  Pictures pictures = make_pictures(random);
  const bool encoders = check_encoders(pictures).good();
  return check_decoders(pictures, random).good() && encoders ? 0 : 1;
}
