// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <latch>
#include <mutex>

#include "base/cuda.h"
#include "hevc/nvdec.h"

namespace kvcodec::hevc {
namespace {

class NvdecDecoder final : public Decoder {
 public:
  NvdecDecoder(std::shared_ptr<const CudaDriver> driver, std::unique_ptr<NvdecPool> pool)
      : driver_(std::move(driver)), pool_(std::move(pool)) {}

  const char* name() const override { return "nvdec"; }

  void decode(std::span<DecodeJob> jobs, int) override {
    std::latch left(static_cast<ptrdiff_t>(jobs.size()));
    std::vector<PinnedBuffer> staged(jobs.size());
    for (size_t i = 0; i < jobs.size(); ++i) {
      DecodeJob& job = jobs[i];
      if (job.status = check_target(job); !job.status.ok()) {
        left.count_down();
        continue;
      }
      NvdecJob request;
      request.parameters = job.parameters;
      request.slice_data = job.slice_data;
      request.use = [this, &buffer = staged[i]](const DevicePicture& picture, void* stream) {
        return copy_out(picture, static_cast<CUstream>(stream), buffer);
      };
      request.done = [this, &job, &buffer = staged[i], &left](Status status) {
        if (status.ok()) copy_rows(buffer, job);
        if (buffer.data() != nullptr) release(std::move(buffer));
        job.status = std::move(status);
        left.count_down();
      };
      pool_->submit(std::move(request));
    }
    left.wait();
  }

 private:
  Status copy_out(const DevicePicture& picture, CUstream stream, PinnedBuffer& buffer) {
    KVCODEC_TRY(buffer, acquire(size_t{picture.width} * picture.height));
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = picture.samples;
    copy.srcPitch = picture.pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = buffer.data();
    copy.dstPitch = picture.width;
    copy.WidthInBytes = picture.width;
    copy.Height = picture.height;
    return driver_->check(driver_->cuda().cuMemcpy2DAsync(&copy, stream), "cuMemcpy2DAsync");
  }

  static void copy_rows(const PinnedBuffer& buffer, const DecodeJob& job) {
    const PictureTarget& target = job.target;
    for (uint32_t y = 0; y < target.height; ++y) {
      std::memcpy(target.samples + y * target.stride, buffer.data() + size_t{y} * target.width,
                  target.width);
    }
  }

  Result<PinnedBuffer> acquire(size_t size) {
    {
      const std::lock_guard lock(mutex_);
      for (PinnedBuffer& idle : idle_) {
        if (idle.size() < size) continue;
        std::swap(idle, idle_.back());
        PinnedBuffer buffer = std::move(idle_.back());
        idle_.pop_back();
        return buffer;
      }
    }
    return PinnedBuffer::allocate(*driver_, size);
  }

  void release(PinnedBuffer buffer) {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < kMaxIdle) idle_.push_back(std::move(buffer));
  }

  static constexpr size_t kMaxIdle = 64;
  const std::shared_ptr<const CudaDriver> driver_;
  std::mutex mutex_;
  std::vector<PinnedBuffer> idle_;
  const std::unique_ptr<NvdecPool> pool_;  // destroyed first: its threads use what is above
};

}  // namespace

Result<std::unique_ptr<Decoder>> create_nvdec_decoder(const NvdecOptions& options) {
  KVCODEC_TRY(auto pool, NvdecPool::create(options));
  KVCODEC_TRY(auto driver, CudaDriver::open(options.device));
  return std::unique_ptr<Decoder>(
      std::make_unique<NvdecDecoder>(std::move(driver), std::move(pool)));
}

}  // namespace kvcodec::hevc
