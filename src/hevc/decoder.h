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
  PictureTarget target;                 // of the parameters' size; written on success only
  // Out: corrupt where the data is not such a picture. A decoder may miss that: damaged data can
  // give a wrong picture (always the same one, with nothing of other pictures in it), so check
  // checksums too.
  Status status = ok_status();
};

// A decoder of stored pictures. Sessions are kept between calls. Thread-safe: concurrent calls
// share the decoder's threads or sessions.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual const char* name() const = 0;
  // Decodes all jobs in any order; returns when each has its status.
  virtual void decode(std::span<DecodeJob> jobs) = 0;
};

// libavcodec, on up to `threads` threads (0: all cores). unsupported where libavcodec has no HEVC
// decoder.
Result<std::unique_ptr<Decoder>> create_software_decoder(int threads);

}  // namespace kvcodec::hevc
