// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "hevc/bit_writer.h"
#include "hevc/decoder.h"
#include "hevc/stream.h"

namespace kvcodec::hevc {

Status check_job(const DecodeJob& job) {
  KVCODEC_CHECK(check_parameters(job.parameters));
  const PictureTarget& target = job.target;
  if (target.samples == nullptr || target.width != job.parameters.width ||
      target.height != job.parameters.height || target.stride < target.width) {
    return make_error(
        ErrorCode::invalid_argument, "decode target: expected {}x{}, found {}x{} with stride {}",
        job.parameters.width, job.parameters.height, target.width, target.height, target.stride);
  }
  if (const uint64_t limit = max_slice_data_bytes(job.parameters);
      job.slice_data.empty() || job.slice_data.size() > limit) {
    return make_error(ErrorCode::corrupt, "slice data: expected 1 to {} bytes, found {}", limit,
                      job.slice_data.size());
  }
  // Nothing that a decoder could take for the start of another NAL unit gets past this.
  if (const auto offset = find_forbidden_bytes(job.slice_data)) {
    return make_error(ErrorCode::corrupt,
                      "slice data, offset {}: bytes that no NAL unit may hold there", *offset);
  }
  return ok_status();
}

}  // namespace kvcodec::hevc
