// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/cuda_pool.h"
#include "kvcodec/profile.h"
#include "publish/publish_kernels.h"
#include "restore/cuda_kernels.h"

namespace kvcodec::publish {

// A profile's groups in device memory, in the order of the profile.
struct ProfileOnDevice {
  struct Group {
    DeviceBuffer basis;   // f32 [components][channels]
    DeviceBuffer mean;    // f32 [channels]
    DeviceBuffer metric;  // f32 [channels], or a matrix a head
  };
  std::vector<Group> groups;
};

// What the chunks of a publisher share. Thread-safe; the driver's context must be current.
class PublishDevice {
 public:
  static Result<std::unique_ptr<PublishDevice>> create(int device, uint64_t max_bytes);
  ~PublishDevice();

  const CudaDriver& driver() const { return *driver_; }
  const PublishKernels& kernels() const { return *kernels_; }
  const restore::CudaKernels& restore_kernels() const { return *restore_kernels_; }
  // Kept for as long as this lives.
  Result<const ProfileOnDevice*> profile(const Profile& profile);
  CUstream next_stream() { return streams_[next_stream_++ % kStreams]; }
  BufferPool<PinnedBuffer>& host_buffers() { return host_buffers_; }
  BufferPool<DeviceBuffer>& device_buffers() { return device_buffers_; }

  // Waits until so many bytes are free of max_bytes. out_of_memory where there are never as many.
  Status acquire(uint64_t bytes);
  void release(uint64_t bytes);

 private:
  static constexpr size_t kStreams = 4;
  PublishDevice() = default;

  std::shared_ptr<const CudaDriver> driver_;
  std::unique_ptr<PublishKernels> kernels_;
  std::unique_ptr<restore::CudaKernels> restore_kernels_;
  CUstream streams_[kStreams] = {};
  std::atomic<size_t> next_stream_ = 0;
  BufferPool<PinnedBuffer> host_buffers_;
  BufferPool<DeviceBuffer> device_buffers_;
  std::mutex profiles_mutex_;
  std::map<std::string, ProfileOnDevice> profiles_;  // by digest
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t max_bytes_ = 0, bytes_in_use_ = 0;
};

// The device memory of one chunk, and the page-locked memory that mirrors what crosses PCIe.
// Places are given out first, then there is memory for all.
class ChunkMemory {
 public:
  enum class Region : uint8_t { uploaded, fetched, scratch };
  struct Place {
    Region region = Region::scratch;
    uint64_t offset = 0;
  };

  ChunkMemory(PublishDevice& device, CUstream stream) : device_(device), stream_(stream) {}
  ~ChunkMemory();
  ChunkMemory(const ChunkMemory&) = delete;
  ChunkMemory& operator=(const ChunkMemory&) = delete;

  Place upload(std::span<const std::byte> bytes);
  Place fetched(uint64_t bytes) { return reserve(Region::fetched, bytes); }
  Place scratch(uint64_t bytes) { return reserve(Region::scratch, bytes); }
  // Takes the memory and enqueues the upload.
  Status allocate();

  CUstream stream() const { return stream_; }
  CUdeviceptr address(Place place) const {
    return memory_->data() + begin_[static_cast<size_t>(place.region)] + place.offset;
  }
  template <typename T>
  T* on_device(Place place, uint64_t index = 0) const {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are integers to the host.
    return reinterpret_cast<T*>(address(place)) + index;
  }
  template <typename T>
  T* on_host(Place place, uint64_t index = 0) const {
    return reinterpret_cast<T*>(host_->data() + begin_[static_cast<size_t>(place.region)] +
                                place.offset) +
           index;
  }
  Status set(Place place, uint8_t value, uint64_t bytes) const;
  // Enqueues the copy of bytes of the host's mirror to the device.
  Status send(Place place, uint64_t bytes) const;
  // Enqueues the copy of fetched bytes to the host.
  Status fetch(Place place, uint64_t bytes) const;
  // Until everything enqueued has ended.
  Status synchronise() const;

 private:
  Place reserve(Region region, uint64_t bytes);

  PublishDevice& device_;
  const CUstream stream_;
  std::vector<std::byte> upload_;
  uint64_t bytes_[3] = {};  // by region
  uint64_t begin_[3] = {};
  uint64_t acquired_ = 0;
  PooledBuffer<DeviceBuffer> memory_;
  PooledBuffer<PinnedBuffer> host_;
};

}  // namespace kvcodec::publish
