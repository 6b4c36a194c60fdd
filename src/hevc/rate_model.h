// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "hevc/picture.h"

// The size of pictures estimated without coding them. All estimates are deterministic on one build
// and thread-safe; docs/benchmarks.md, "Rate model", has what they miss by.
namespace kvcodec::hevc {

// How many samples have each |sample - 128|.
using MagnitudeCounts = std::array<uint32_t, 129>;

// What a decision between the codings of a picture needs: the same for both settings of
// persistent_rice.
struct Rates {
  double plain = 0, rice = 0;
  double best() const { return rice < plain ? rice : plain; }
};

// Bits of a context bin that is one with this probability, independently of those before.
double context_bin_bits(double probability);

// Bits of a sample where samples are drawn independently with these counts, in large pictures of
// them alone. Takes about 10 microseconds: for choosing steps from histograms. 0 without samples.
Rates sample_bits(const MagnitudeCounts& counts);

// Bytes of the picture's slice data: sample_bits() of its coding tree units, those of like
// spread together. Requires check_parameters().
Rates picture_bytes(const PictureView& picture);

}  // namespace kvcodec::hevc
