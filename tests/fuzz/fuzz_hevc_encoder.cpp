// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <vector>

#include "fuzz/require.h"
#include "hevc/encoder.h"

// The first bytes choose up to 20 pictures, their sizes and settings; the others are their
// residuals, run by run: a byte that says how many samples follow and how large they may be, then
// the samples. Every variant gives what the reference gives.
using namespace kvcodec;

namespace {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}
  bool empty() const { return at_ == end_; }
  uint8_t next() { return at_ == end_ ? 0 : *at_++; }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

void fill(std::vector<uint8_t>& samples, Input& input) {
  std::fill(samples.begin(), samples.end(), uint8_t{128});
  for (size_t at = 0; at < samples.size() && !input.empty();) {
    const uint8_t run = input.next();
    const size_t length = std::min<size_t>(size_t{1} << (run & 15), samples.size() - at);
    const uint8_t mask = static_cast<uint8_t>((2 << (run >> 4 & 7)) - 1);
    if (run >= 128) {  // all alike
      const auto value = static_cast<uint8_t>(128 + (input.next() & mask) - mask / 2);
      std::memset(samples.data() + at, value, length);
    } else {
      for (size_t i = 0; i < length && !input.empty(); ++i)
        samples[at + i] = static_cast<uint8_t>(128 + (input.next() & mask) - mask / 2);
    }
    at += length;
    if (run % 7 == 0) return;  // the next picture's turn
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const size_t count = 1 + input.next() % 20;
  std::vector<std::vector<uint8_t>> samples(count), expected(count), found(count);
  std::vector<hevc::EncodeJob> jobs(count);
  for (size_t i = 0; i < count; ++i) {
    const uint8_t shape = input.next();
    const uint32_t width = 144 + 8 * (shape & 7), height = 144 + 8 * (shape >> 3 & 7);
    samples[i].resize(size_t{width} * height);
    jobs[i] = {{samples[i].data(), width, height, width}, (shape & 64) != 0, &expected[i]};
  }
  for (auto& picture : samples) fill(picture, input);
  hevc::encoder_variants()[0].encode(jobs);
  for (const hevc::EncoderOps& variant : hevc::encoder_variants().subspan(1)) {
    for (size_t i = 0; i < count; ++i) jobs[i].slice_data = &found[i];
    variant.encode(jobs);
    KVCODEC_REQUIRE(found == expected);
  }
  return 0;
}
