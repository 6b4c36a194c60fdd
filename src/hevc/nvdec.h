// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>

#include "hevc/decoder.h"

namespace kvcodec::hevc {

// NVDEC, the video decoder of NVIDIA GPUs. The driver is loaded when a pool is created: nothing
// here needs a GPU, or CUDA's toolkit, to build or to start.

struct NvdecOptions {
  int device = 0;  // CUDA ordinal
  // Decoders working at once. 0: one more than the GPU has engines, which keeps them busy while a
  // session waits for its pictures to be used.
  int sessions = 0;
  // Device memory for decoded pictures, all sessions together. What is left for one session
  // decides how many pictures it has in flight, 2 to 8; below 2 a picture is refused.
  uint64_t max_device_bytes = uint64_t{400} << 20;
  int stream_priority = 0;  // CUDA's; 0 is the lowest
};

// What the driver says of one GPU's HEVC 4:2:0 8-bit decoding.
struct NvdecInfo {
  std::string gpu;
  uint32_t engines = 0;
  uint32_t min_width = 0, min_height = 0, max_width = 0, max_height = 0;
};

// A decoded picture in device memory.
struct DevicePicture {
  uint64_t samples = 0;  // CUdeviceptr of the luma plane
  size_t pitch = 0;      // bytes from one row to the next
  uint32_t width = 0, height = 0;
};

// A picture to decode. The slice data must live until `done`.
struct NvdecJob {
  StreamParameters parameters;
  std::span<const uint8_t> slice_data;  // host memory
  int priority = 0;                     // greater comes first; equal ones in order of submission
  std::stop_token stop;                 // requested before decoding begins: cancelled
  // Enqueues what is to be done with the picture on `stream` (a CUstream of the session;
  // CUDA's context is current) and returns: the picture stays until that work is done.
  // Called from a session's thread, at most once, and only for pictures that NVDEC decoded without
  // an error of its own - which damaged data can pass, so check content checksums too.
  std::function<Status(const DevicePicture& picture, void* stream)> use;
  // Called once, from a session's thread or from submit(), when `use`'s work has ended or there
  // will be none. corrupt: NVDEC or a check refused the data; device: the driver failed twice.
  std::function<void(Status status)> done;
};

struct NvdecStats {
  uint64_t pictures = 0, refused = 0, failed = 0;  // decoded, corrupt, device errors
  uint64_t created = 0, reconfigured = 0;          // decoders
  uint64_t retried = 0;                            // pictures decoded again after a device error
};

// One queue over all engines of one GPU. Sessions are created when first needed (34 to 64 ms each,
// serialised by the driver) and then reconfigured from size to size. Thread-safe. Destruction waits
// for pictures in decoding and gives the others `cancelled`.
class NvdecPool {
 public:
  // unsupported where there is no NVIDIA driver, no such GPU, or the GPU does not decode HEVC; the
  // message says which.
  static Result<std::unique_ptr<NvdecPool>> create(const NvdecOptions& options = {});
  virtual ~NvdecPool() = default;
  virtual const NvdecInfo& info() const = 0;
  virtual void submit(NvdecJob job) = 0;
  virtual NvdecStats stats() const = 0;
};

// Decodes into host memory through a pool of its own. Errors as NvdecPool::create.
Result<std::unique_ptr<Decoder>> create_nvdec_decoder(const NvdecOptions& options = {});

}  // namespace kvcodec::hevc
