// SPDX-License-Identifier: Apache-2.0
#include "hevc/decoder_variants.h"

#include <vector>

#include "base/error.h"
#include "hevc/cabac_tables.h"

namespace kvcodec::hevc {

std::span<const DecoderOps> decoder_variants() {
  static const std::vector<DecoderOps> variants = [] {
    std::vector<DecoderOps> all = {kReferenceDecoder, kScalarDecoder};
    if (const DecoderOps* bmi2 = bmi2_decoder()) all.push_back(*bmi2);
    all.insert(all.end(), lane_decoders().begin(), lane_decoders().end());
    return all;
  }();
  return variants;
}

Status fault_status(const SliceJob& job) {
  const uint32_t block = job.fault.block;
  const uint32_t blocks = blocks_of(job.parameters.width) * blocks_of(job.parameters.height);
  switch (job.fault.kind) {
    case SliceFaultKind::none: return ok_status();
    case SliceFaultKind::general:
      return make_error(ErrorCode::unsupported,
                        "slice data, block {} of {}: syntax that only a general decoder knows",
                        block, blocks);
    case SliceFaultKind::ends_early:
      return make_error(ErrorCode::corrupt, "slice data, block {} of {}: the data end before it",
                        block, blocks);
    case SliceFaultKind::stops:
      return make_error(
          ErrorCode::corrupt,
          "slice data, block {} of {}: end_of_slice_segment_flag: expected 0, found 1", block,
          blocks);
    case SliceFaultKind::goes_on:
      return make_error(
          ErrorCode::corrupt,
          "slice data, block {} of {}: end_of_slice_segment_flag: expected 1, found 0", block,
          blocks);
    case SliceFaultKind::trailing:
      return make_error(ErrorCode::corrupt,
                        "slice data, after block {} of {}: expected "
                        "rbsp_slice_segment_trailing_bits, found other bits",
                        block, blocks);
  }
  return make_error(ErrorCode::corrupt, "slice data: unknown fault");
}

}  // namespace kvcodec::hevc
