// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hevc/picture.h"
#include "kvcodec/result.h"

namespace kvcodec::hevc {

// A picture to encode. Sizes satisfy check_parameters(). The samples are borrowed and stay
// untouched; slice_data is replaced and its capacity reused.
struct EncodeJob {
  PictureView picture;
  bool persistent_rice = false;
  std::vector<uint8_t>* slice_data = nullptr;
};

// Encodes all jobs on up to `threads` threads (0: all cores) with what is fastest for their number
// on this processor. Jobs may differ in size and setting. Thread-safe. Beside the results and
// threads nothing is allocated once the process has coded as many and as large pictures before:
// every worker's memory, about the size of the slices it codes at once and at most 64 MiB, is kept
// for the next call.
void encode_pictures(std::span<EncodeJob> jobs, int threads);

class JobQueue;
struct LaneScratch;

// One way to encode pictures. All variants give byte-identical slice data (stream.h).
struct EncoderOps {
  const char* name;
  size_t lanes;         // pictures it codes at once
  size_t min_pictures;  // it is the fastest from so many on, as measured (docs/benchmarks.md)
  // Encodes jobs of a queue until it is empty, at most `at_once` (and lanes) at a time.
  void (*work)(JobQueue& queue, size_t at_once, LaneScratch& scratch);

  // Encodes on the calling thread. Thread-safe.
  void encode(std::span<EncodeJob> jobs) const;
  // Pictures of one size and setting; pictures[i] into slice_data[i].
  void encode(const StreamParameters& parameters, std::span<const PictureView> pictures,
              std::span<std::vector<uint8_t>> slice_data) const;
};
// Those this processor runs; [0] is the reference. The fast ones: "scalar", "bmi2", and one
// picture in every 32 bits of a vector "neon", "avx2", "avx512", "avx512vbmi".
std::span<const EncoderOps> encoder_variants();
// The fastest this processor runs for so many pictures.
const EncoderOps& best_encoder(size_t pictures = 1);

}  // namespace kvcodec::hevc
