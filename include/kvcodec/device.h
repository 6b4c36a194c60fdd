// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "kvcodec/codec.h"
#include "kvcodec/kv.h"
#include "kvcodec/result.h"

// A KV cache in the memory of an NVIDIA GPU. Restoring: the stored bytes cross PCIe, NVDEC decodes
// the pictures, and kernels restore them in place. Publishing: kernels read the cache and make
// codes, and only these cross PCIe. NVIDIA's driver is loaded when a
// restorer or publisher is created; nothing else of CUDA is needed at run time.
namespace kvcodec {

struct DeviceOptions {
  int device = 0;    // CUDA ordinal
  int sessions = 0;  // NVDEC decoders; 0: one more than the GPU has engines
  // Threads of a call that check and prepare chunks; 0: 4, or all cores where there are fewer.
  int host_threads = 0;
  // Device memory in use beside profiles: half for decoders, half for chunks being restored.
  uint64_t max_device_bytes = uint64_t{400} << 20;
  // CUDA's priority of all streams: 0 is the lowest, and what an engine's streams have by default;
  // smaller numbers go before it. Beside a loop that fills the GPU, restoring at 0 makes next to no
  // progress (docs/benchmarks.md); other values have not been measured.
  int stream_priority = 0;
};

// Borrowed device memory with its geometry: block table and strides describe it as they describe
// host memory. The owner keeps both, and lets nothing touch the chunk's tokens during the call.
struct DeviceTarget {
  uint64_t memory = 0;  // CUdeviceptr of the device of the restorer
  uint64_t bytes = 0;
  const KvGeometry* geometry = nullptr;
};

struct DeviceRestoreJob {
  std::span<const std::byte> object;  // host memory; page-locked or not
  DeviceTarget target;
  uint32_t first_token = 0;  // of the target
  DecodeOptions options;     // `threads` has no meaning here
  std::stop_token stop;      // requested before its last picture is in decoding: cancelled
  // Out. As decode_chunk, but the tokens of a chunk that failed may have been written to.
  Status status = ok_status();
};

// Thread-safe: concurrent calls share the decoders, in order of submission.
class DeviceRestorer {
 public:
  // unsupported where the build or the machine lacks something; the message says what.
  static Result<std::unique_ptr<DeviceRestorer>> create(const DeviceOptions& options = {});
  virtual ~DeviceRestorer() = default;
  virtual const std::string& gpu() const = 0;
  // Restores all jobs; returns when each has its status and the GPU's work for it has ended. What
  // is written is bit for bit what decode_chunk writes.
  virtual void restore(std::span<DeviceRestoreJob> jobs) = 0;
};

struct DevicePublishOptions {
  int device = 0;  // CUDA ordinal
  // Pictures are coded by the GPU too: it leaves the processor free, and takes one warp a picture
  // for as long as hundreds of pictures take. Else by the processor's cores.
  bool encode_on_device = false;
  // Calibrated tiers too. Their kernels have not run on a GPU since codes are chosen by rate and
  // distortion, so without this they are refused as unsupported: encode_chunk is the way.
  bool unproven_calibrated = false;
  // Device memory of chunks being published, beside profiles; calls wait for each other.
  uint64_t max_device_bytes = uint64_t{1} << 30;
};

// Borrowed, as DeviceTarget. Nothing may write to the range's tokens during a call.
struct DeviceSource {
  uint64_t memory = 0;  // CUdeviceptr of the device of the publisher
  uint64_t bytes = 0;
  const KvGeometry* geometry = nullptr;
};

// Thread-safe: concurrent calls overlap, one chunk's transform with another's coding.
class DevicePublisher {
 public:
  // unsupported where the build or the machine lacks something; the message says what.
  static Result<std::unique_ptr<DevicePublisher>> create(const DevicePublishOptions& options = {});
  virtual ~DevicePublisher() = default;
  virtual const std::string& gpu() const = 0;
  // As encode_chunk, byte for byte, errors too. The source's work must have ended: no stream is
  // waited for. options.verify decodes the pictures again, which shows that the object is whole,
  // but does not compare it with the source.
  virtual Result<std::vector<std::byte>> encode(const DeviceSource& source, TokenRange range,
                                                const ChunkId& id,
                                                const EncodeOptions& options) = 0;
};

}  // namespace kvcodec
