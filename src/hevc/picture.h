// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvcodec::hevc {

// Borrowed 8-bit luma samples, rows of `width` samples `stride` bytes apart. Chroma is not data:
// it is 128 in every picture.
struct PictureView {
  const uint8_t* samples = nullptr;
  uint32_t width = 0, height = 0;
  size_t stride = 0;
};
struct PictureTarget {
  uint8_t* samples = nullptr;
  uint32_t width = 0, height = 0;
  size_t stride = 0;
};

// Smallest and largest width and height, NVDEC's own (shared by every decoder we use).
inline constexpr uint32_t kMinPictureSide = 144;
inline constexpr uint32_t kMaxPictureSide = 8192;
// Width and height are multiples of this.
inline constexpr uint32_t kPictureSideStep = 8;

// All that a stream's parameter sets depend on: pictures with equal parameters share a decoder.
struct StreamParameters {
  uint32_t width = 0, height = 0;
  // persistent_rice_adaptation_enabled_flag (H.265 7.4.3.2.2): pays where codes are large. The
  // stream is then in the format range extensions profile, else in Main.
  bool persistent_rice = false;
  bool operator==(const StreamParameters&) const = default;
};

}  // namespace kvcodec::hevc
