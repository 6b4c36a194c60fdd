// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kvcodec/device.h"
#include "restore/chunk_image.h"
#include "restore/cuda_kernels.h"

namespace kvcodec::restore {

// A profile's groups in device memory, in the order of the profile.
struct DeviceProfile {
  struct Group {
    DeviceBuffer basis;  // f32 [components][channels]
    DeviceBuffer mean;   // f32 [channels]
  };
  std::vector<Group> groups;
};
Result<DeviceProfile> upload_profile(const CudaDriver& driver, const Profile& profile);

// One chunk on its way into a target: what the kernels are told.
struct ChunkLaunch {
  const format::Header& header;
  const ChunkImage& image;
  CUdeviceptr memory;   // image.total_bytes of it
  CUdeviceptr scratch;  // image.scratch_bytes of it
  const DeviceTarget& target;
  uint32_t first_token;          // of the target
  uint64_t position;             // of the chunk's first token in its sequence
  const DeviceProfile* profile;  // calibrated tiers
};

// Enqueues what all groups share, once the image is uploaded.
Status launch_start(const CudaKernels& kernels, const ChunkLaunch& chunk, CUstream stream);
// Enqueues what compares all decoded pictures with their checksums, once they are in staging: after
// the groups, so that it is one launch a chunk.
Status launch_checks(const CudaKernels& kernels, const ChunkLaunch& chunk, CUstream stream);
// Enqueues a group's kernels, once its pictures are in staging.
Status launch_group(const CudaKernels& kernels, const ChunkLaunch& chunk, size_t group,
                    CUstream stream);

}  // namespace kvcodec::restore
