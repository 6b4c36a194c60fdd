// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "hevc/picture.h"
#include "kvcodec/result.h"

namespace kvcodec::hevc {

// Why slice data gave no picture. Every variant of the decoder finds the same one.
enum class SliceFaultKind : uint8_t {
  none,
  // H.265 allows it, our decoder does not know it: coding units other than those of
  // encoder_reference.cpp, or levels that no 8-bit sample has. For a general decoder.
  general,
  // Malformed: no decoder gives a picture of the stated size from it.
  ends_early,  // the data end before the block does
  stops,       // end_of_slice_segment_flag is 1 before the last block
  goes_on,     // end_of_slice_segment_flag is 0 after it
  trailing,    // no rbsp_slice_segment_trailing_bits where the slice ends, or more after them
};

struct SliceFault {
  SliceFaultKind kind = SliceFaultKind::none;
  uint32_t block = 0;  // coding tree unit, in raster order
  bool operator==(const SliceFault&) const = default;
};

// Slice data to decode. The data must have passed find_forbidden_bytes(), and the target has the
// parameters' size: multiples of kPictureSideStep up to kMaxPictureSide, also below what streams
// may have.
struct SliceJob {
  StreamParameters parameters;
  std::span<const uint8_t> slice_data;  // see stream.h
  PictureTarget target;                 // undefined samples where there is a fault
  SliceFault fault;                     // out
};

// unsupported for `general`, corrupt for the others.
Status fault_status(const SliceJob& job);

}  // namespace kvcodec::hevc
