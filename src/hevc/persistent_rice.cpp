// SPDX-License-Identifier: Apache-2.0
#include "hevc/persistent_rice.h"

#include <cstdlib>

namespace kvcodec::hevc {

bool persistent_rice_pays(const PictureView& picture) {
  uint64_t sum = 0;
  for (uint32_t y = 0; y < picture.height; ++y) {
    const uint8_t* row = picture.samples + y * picture.stride;
    uint32_t row_sum = 0;
    for (uint32_t x = 0; x < picture.width; ++x) {
      row_sum += static_cast<uint32_t>(std::abs(row[x] - 128));
    }
    sum += row_sum;
  }
  constexpr uint64_t kMeanNumerator = 3, kMeanDenominator = 1;
  return sum * kMeanDenominator > kMeanNumerator * picture.width * picture.height;
}

}  // namespace kvcodec::hevc
