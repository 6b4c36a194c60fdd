// SPDX-License-Identifier: Apache-2.0
#include "publish/publish_device.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace kvcodec::publish {
namespace {

constexpr uint64_t kAlign = 256;
uint64_t aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

Result<std::unique_ptr<PublishDevice>> PublishDevice::create(int device, uint64_t max_bytes) {
  auto made = std::unique_ptr<PublishDevice>(new PublishDevice);
  KVCODEC_TRY(made->driver_, CudaDriver::open(device));
  const CudaScope scope(*made->driver_);
  KVCODEC_TRY(made->kernels_, PublishKernels::load(*made->driver_));
  KVCODEC_TRY(made->restore_kernels_, restore::CudaKernels::load(*made->driver_));
  for (CUstream& stream : made->streams_) {
    KVCODEC_TRY(stream, made->driver_->new_low_priority_stream());
  }
  made->max_bytes_ = max_bytes;
  made->device_buffers_.limit(max_bytes);
  made->host_buffers_.limit(max_bytes);
  return made;
}

PublishDevice::~PublishDevice() {
  if (driver_ == nullptr) return;
  const CudaScope scope(*driver_);
  for (CUstream stream : streams_)
    if (stream != nullptr) driver_->cuda().cuStreamDestroy(stream);
}

Result<const ProfileOnDevice*> PublishDevice::profile(const Profile& profile) {
  const std::lock_guard lock(profiles_mutex_);
  const std::string digest = to_hex(profile.digest());
  const auto known = profiles_.find(digest);
  if (known != profiles_.end()) return &known->second;
  const auto upload = [&](const std::vector<float>& values) -> Result<DeviceBuffer> {
    KVCODEC_TRY(auto buffer, DeviceBuffer::allocate(*driver_, values.size() * sizeof(float)));
    KVCODEC_CHECK(driver_->check(
        driver_->cuda().cuMemcpyHtoD(buffer.data(), values.data(), values.size() * sizeof(float)),
        "cuMemcpyHtoD"));
    return buffer;
  };
  ProfileOnDevice uploaded;
  for (const ProfileGroup& group : profile.groups()) {
    KVCODEC_TRY(auto basis, upload(group.basis));
    KVCODEC_TRY(auto mean, upload(group.mean));
    KVCODEC_TRY(auto metric, upload(group.metric));
    uploaded.groups.push_back({std::move(basis), std::move(mean), std::move(metric)});
  }
  return &profiles_.emplace(digest, std::move(uploaded)).first->second;
}

Status PublishDevice::acquire(uint64_t bytes) {
  std::unique_lock lock(mutex_);
  if (bytes > max_bytes_) {
    return make_error(ErrorCode::out_of_memory,
                      "publishing the chunk needs {} bytes of device memory, the limit is {}",
                      bytes, max_bytes_);
  }
  changed_.wait(lock, [&] { return bytes <= max_bytes_ - bytes_in_use_; });
  bytes_in_use_ += bytes;
  return ok_status();
}

void PublishDevice::release(uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    bytes_in_use_ -= bytes;
  }
  changed_.notify_all();
}

ChunkMemory::~ChunkMemory() {
  if (acquired_ == 0) return;
  static_cast<void>(synchronise());  // where a call failed: nobody may use the memory before
  device_.release(acquired_);
}

ChunkMemory::Place ChunkMemory::reserve(Region region, uint64_t bytes) {
  uint64_t& end = bytes_[static_cast<size_t>(region)];
  return {region, std::exchange(end, aligned(end + bytes))};
}

ChunkMemory::Place ChunkMemory::upload(std::span<const std::byte> bytes) {
  const Place place = reserve(Region::uploaded, bytes.size());
  upload_.resize(bytes_[static_cast<size_t>(Region::uploaded)]);
  if (!bytes.empty()) std::memcpy(upload_.data() + place.offset, bytes.data(), bytes.size());
  return place;
}

Status ChunkMemory::allocate() {
  begin_[1] = bytes_[0];
  begin_[2] = begin_[1] + bytes_[1];
  const uint64_t total = begin_[2] + bytes_[2];
  const uint64_t with_spare = BufferPool<DeviceBuffer>::rounded(total);
  KVCODEC_CHECK(device_.acquire(with_spare));
  acquired_ = with_spare;
  KVCODEC_TRY(memory_, device_.device_buffers().take(device_.driver(), total));
  KVCODEC_TRY(host_, device_.host_buffers().take(device_.driver(), begin_[2]));
  if (upload_.empty()) return ok_status();
  std::memcpy(host_->data(), upload_.data(), upload_.size());
  return device_.driver().check(device_.driver().cuda().cuMemcpyHtoDAsync(
                                    memory_->data(), host_->data(), upload_.size(), stream_),
                                "cuMemcpyHtoDAsync");
}

Status ChunkMemory::set(Place place, uint8_t value, uint64_t bytes) const {
  if (bytes == 0) return ok_status();
  return device_.driver().check(
      device_.driver().cuda().cuMemsetD8Async(address(place), value, bytes, stream_),
      "cuMemsetD8Async");
}

Status ChunkMemory::send(Place place, uint64_t bytes) const {
  if (bytes == 0) return ok_status();
  return device_.driver().check(device_.driver().cuda().cuMemcpyHtoDAsync(
                                    address(place), on_host<std::byte>(place), bytes, stream_),
                                "cuMemcpyHtoDAsync");
}

Status ChunkMemory::fetch(Place place, uint64_t bytes) const {
  if (bytes == 0) return ok_status();
  return device_.driver().check(device_.driver().cuda().cuMemcpyDtoHAsync(
                                    on_host<std::byte>(place), address(place), bytes, stream_),
                                "cuMemcpyDtoHAsync");
}

Status ChunkMemory::synchronise() const {
  return device_.driver().check(device_.driver().cuda().cuStreamSynchronize(stream_),
                                "cuStreamSynchronize");
}

}  // namespace kvcodec::publish
