// SPDX-License-Identifier: Apache-2.0
// The NEON encoder against the reference, for a machine that is none: built by neon_check.sh with
// a cross compiler and run in an emulator.
#include <cstdio>

#include "hevc/encoder.h"

// From Highway's library, of which there is none for this target: every 64-bit ARM has NEON.
namespace hwy {
int64_t SupportedTargets();
int64_t SupportedTargets() { return int64_t{1} << 28; }
}  // namespace hwy

int main() {
  using namespace kvcodec::hevc;
  uint64_t state = 1;
  const auto below = [&](uint32_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 33) % n;
  };
  constexpr size_t kPictures = 24;
  std::vector<std::vector<uint8_t>> samples(kPictures), expected(kPictures), found(kPictures);
  std::vector<EncodeJob> jobs(kPictures);
  for (size_t i = 0; i < kPictures; ++i) {
    const uint32_t width = 144 + 8 * below(20), height = 144 + 8 * below(20);
    samples[i].resize(size_t{width} * height);
    const uint32_t spread = 1 + (1u << i % 8), one_in = i % 3 == 0 ? 40 : 1;
    for (uint8_t& sample : samples[i]) {
      sample = static_cast<uint8_t>(128 + (below(one_in) == 0 ? below(spread) : 0) -
                                    spread / 2 / one_in);
    }
    jobs[i] = {{samples[i].data(), width, height, width}, i % 2 != 0, &expected[i]};
  }
  encoder_variants()[0].encode(jobs);
  bool neon = false, same = true;
  for (const EncoderOps& variant : encoder_variants().subspan(1)) {
    for (size_t i = 0; i < kPictures; ++i) jobs[i].slice_data = &found[i];
    variant.encode(jobs);
    std::printf("%s: %s\n", variant.name, found == expected ? "same" : "DIFFERS");
    same &= found == expected;
    neon |= variant.lanes == 4;
  }
  return neon && same ? 0 : 1;
}
