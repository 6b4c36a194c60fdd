// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hevc/picture.h"
#include "kvcodec/result.h"

namespace kvcodec::hevc {

// A stored picture is the slice segment data of one P slice alone (7.3.8, emulation prevention
// included). Everything before it is derived: these functions write it, and together make an
// Annex B byte stream that any HEVC decoder takes:
//   stream_start(p), then picture_header(p, poc) + slice data for every picture, poc = 1, 2, ...
// Every picture refers to the flat-128 IDR picture of stream_start only, so pictures decode in any
// order and number. After kMaxPicturesPerStart pictures stream_start must be sent again.
// One liberty against the letter of H.265: the cabac_zero_words that 7.4.3.10 wants after slices of
// very few bits are not stored; they only pace hardware; HM, libavcodec and NVDEC do without.
inline constexpr uint32_t kMaxPicturesPerStart = 255;

// invalid_argument where a side is outside the limits of picture.h.
Status check_parameters(const StreamParameters& parameters);

// No slice data that an encoder of ours writes is longer, whatever the samples. Requires
// check_parameters().
uint64_t max_slice_data_bytes(const StreamParameters& parameters);

// VPS, SPS, PPS and the flat-128 IDR picture. Requires check_parameters().
std::vector<uint8_t> stream_start(const StreamParameters& parameters);

// The flat-128 IDR picture alone, as stream_start() ends with it: start code and NAL unit.
std::vector<uint8_t> flat_picture_unit(const StreamParameters& parameters);

// Start code, NAL unit header and slice segment header of picture `poc` in
// [1, kMaxPicturesPerStart], byte-aligned: the slice data follows as it is.
std::vector<uint8_t> picture_header(const StreamParameters& parameters, uint32_t poc);

}  // namespace kvcodec::hevc
