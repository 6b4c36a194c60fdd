// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>

#include "hevc/picture.h"

namespace kvcodec::bench {

struct X265Result {
  double bytes = 0;    // of all pictures, in the setting that is smallest for such data
  double seconds = 0;  // processor time for them in the fastest, the start-up not included
};

// Runs the program `x265 --lossless --preset superfast` on one thread over the pictures (equal
// sizes, luma; chroma 128), through files in a temporary folder. Nothing where the program is not
// on PATH or fails, or there is one picture only.
std::optional<X265Result> run_x265(std::span<const hevc::PictureView> pictures);

}  // namespace kvcodec::bench
