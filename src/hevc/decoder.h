// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hevc/picture.h"
#include "kvcodec/result.h"

namespace kvcodec::hevc {

struct DecodeJob {
  StreamParameters parameters;
  std::span<const uint8_t> slice_data;  // see stream.h
  // Of the parameters' size, and of this job alone. Where the job fails its samples are undefined.
  PictureTarget target;
  // Out: corrupt where the data is not such a picture. A decoder may miss that: damaged data can
  // give a wrong picture (always the same one, with nothing of other pictures in it), so check
  // checksums too.
  Status status = ok_status();
};

// invalid_argument where parameters or target make no sense, corrupt where the data's size or bytes
// alone show that they are not slice data. Decoders call it.
Status check_job(const DecodeJob& job);
// Its parts: the target against the parameters, and the slice data, which requires
// check_parameters().
Status check_target(const DecodeJob& job);
Status check_slice_data(const StreamParameters& parameters, std::span<const uint8_t> slice_data);

// A decoder of stored pictures. Sessions are kept between calls. Thread-safe: concurrent calls
// share the decoder's threads, lanes or sessions.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual const char* name() const = 0;
  // Decodes all jobs in any order, the more at once the better, on up to `threads` of the decoder's
  // threads (0: all), the caller's among them; returns when each has its status.
  virtual void decode(std::span<DecodeJob> jobs, int threads = 0) = 0;
};

// Our own decoder (decoder_variants.h) on up to `threads` threads (0: all cores). What it does not
// know of H.265 goes to libavcodec; unsupported where that has no HEVC decoder.
std::unique_ptr<Decoder> create_software_decoder(int threads);

// libavcodec alone: slow, knows all of H.265. unsupported where it has no HEVC decoder.
Result<std::unique_ptr<Decoder>> create_general_decoder(int threads);

}  // namespace kvcodec::hevc
