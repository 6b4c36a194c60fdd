// SPDX-License-Identifier: Apache-2.0
#include "hevc/encoder_arguments.h"

// One warp a picture: warp_encoder.h says how. The chain of the arithmetic coder is what takes the
// time, so warps are many and small, and nothing is shared between them.
namespace kvcodec::hevc {
namespace {

struct DeviceWarp {
  uint32_t lane;
  template <typename F>
  __device__ void each(const F& f) {
    f(lane);
    __syncwarp();
  }
  template <typename F>
  __device__ uint32_t ballot(const F& f) {
    const uint32_t mask = __ballot_sync(0xffffffff, f(lane));
    __syncwarp();
    return mask;
  }
  template <typename F>
  __device__ void one(const F& f) {
    if (lane == 0) f();
    __syncwarp();
  }
};

struct DeviceOps {
  static __device__ uint32_t big_endian(uint32_t x) { return __byte_perm(x, 0, 0x0123); }
  static __device__ int leading_zeros(uint32_t x) { return __clz(static_cast<int>(x)); }
  static __device__ int leading_zeros64(uint64_t x) { return __clzll(static_cast<long long>(x)); }
};

}  // namespace

extern "C" __global__ void __launch_bounds__(kWarpLanes) encode_pictures(EncodeArguments a) {
  __shared__ WarpTables tables;
  __shared__ WarpState state;
  auto* to = reinterpret_cast<uint32_t*>(&tables);
  const auto* from = reinterpret_cast<const uint32_t*>(a.tables);
  static_assert(sizeof tables % 4 == 0);
  for (uint32_t i = threadIdx.x; i < sizeof tables / 4; i += kWarpLanes) to[i] = from[i];
  __syncwarp();
  DeviceWarp warp{threadIdx.x};
  const WarpPicture picture = a.pictures[blockIdx.x];
  const uint32_t bytes = encode_with_warp<DeviceOps>(warp, picture, tables, state);
  if (threadIdx.x == 0) a.bytes[blockIdx.x] = bytes;
}

extern "C" __global__ void pack_slices(PackArguments a) {
  const uint32_t bytes = a.bytes[blockIdx.x];
  if (bytes == kSliceTooLong) return;
  const uint32_t* from = a.pictures[blockIdx.x].out + 1;
  auto* to = reinterpret_cast<uint32_t*>(a.packed + a.offsets[blockIdx.x]);
  for (uint32_t i = threadIdx.x; i < (bytes + 3) / 4; i += blockDim.x) to[i] = from[i];
}

}  // namespace kvcodec::hevc
