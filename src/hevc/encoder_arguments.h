// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hevc/warp_encoder.h"

// What the kernels of encoder_cuda.cu are given. Pointers are to device memory.
namespace kvcodec::hevc {

struct EncodeArguments {
  const WarpPicture* pictures;  // [count]
  const WarpTables* tables;
  uint32_t* bytes;  // [count] of slice data, or kSliceTooLong
  uint32_t count;
};

// Slices to one place after another, each at the next multiple of kPackAlign.
inline constexpr uint32_t kPackAlign = 16;
struct PackArguments {
  const WarpPicture* pictures;
  const uint32_t* bytes;
  const uint64_t* offsets;  // [count] into `packed`
  uint8_t* packed;
  uint32_t count;
};

}  // namespace kvcodec::hevc
