// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hevc/picture.h"
#include "kvcodec/result.h"

namespace kvcodec::hevc {

// One way to encode pictures. All variants give byte-identical slice data (stream.h).
struct EncoderOps {
  const char* name;
  // Encodes pictures[i] into slice_data[i] (replaced; its capacity is reused). All pictures have
  // parameters' size and stay untouched. Requires check_parameters(). Thread-safe.
  void (*encode)(const StreamParameters& parameters, std::span<const PictureView> pictures,
                 std::span<std::vector<uint8_t>> slice_data);
};
std::span<const EncoderOps> encoder_variants();  // [0] is the reference
const EncoderOps& best_encoder();                // the fastest this processor runs

}  // namespace kvcodec::hevc
