// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "hevc/bit_writer.h"
#include "hevc/decoder.h"
#include "hevc/stream.h"

namespace kvcodec::hevc {

Status check_target(const DecodeJob& job) {
  const PictureTarget& target = job.target;
  if (target.samples == nullptr || target.width != job.parameters.width ||
      target.height != job.parameters.height || target.stride < target.width) {
    return make_error(
        ErrorCode::invalid_argument, "decode target: expected {}x{}, found {}x{} with stride {}",
        job.parameters.width, job.parameters.height, target.width, target.height, target.stride);
  }
  return ok_status();
}

Status check_slice_data(const StreamParameters& parameters, std::span<const uint8_t> slice_data) {
  if (const uint64_t limit = max_slice_data_bytes(parameters);
      slice_data.empty() || slice_data.size() > limit) {
    return make_error(ErrorCode::corrupt, "slice data: expected 1 to {} bytes, found {}", limit,
                      slice_data.size());
  }
  // Nothing that a decoder could take for the start of another NAL unit gets past this.
  if (const auto offset = find_forbidden_bytes(slice_data)) {
    return make_error(ErrorCode::corrupt,
                      "slice data, offset {}: bytes that no NAL unit may hold there", *offset);
  }
  return ok_status();
}

Status check_job(const DecodeJob& job) {
  KVCODEC_CHECK(check_parameters(job.parameters));
  KVCODEC_CHECK(check_target(job));
  return check_slice_data(job.parameters, job.slice_data);
}

}  // namespace kvcodec::hevc
