// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kvcodec/codec.h"
#include "kvcodec/kv.h"
#include "kvcodec/result.h"

// Restoring into a KV cache in the memory of an NVIDIA GPU: the stored bytes cross PCIe, NVDEC
// decodes the pictures, and kernels restore them in place. NVIDIA's driver is loaded when a
// restorer is created; nothing else of CUDA is needed at run time.
namespace kvcodec {

struct DeviceOptions {
  int device = 0;    // CUDA ordinal
  int sessions = 0;  // NVDEC decoders; 0: one more than the GPU has engines
  // Threads of a call that check and prepare chunks; 0: 4, or all cores where there are fewer.
  int host_threads = 0;
  // Device memory in use beside profiles: half for decoders, half for chunks being restored.
  uint64_t max_device_bytes = uint64_t{400} << 20;
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

}  // namespace kvcodec
