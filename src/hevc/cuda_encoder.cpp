// SPDX-License-Identifier: Apache-2.0
#include "hevc/cuda_encoder.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <numeric>

#include "base/cuda_images.h"
#include "base/cuda_module.h"
#include "base/cuda_pool.h"
#include "base/error.h"
#include "base/parallel.h"
#include "hevc/bit_writer.h"
#include "hevc/encoder_arguments.h"
#include "hevc/stream.h"

namespace kvcodec::hevc {
namespace {

enum Kernel : size_t { kEncodePictures, kPackSlices };
constexpr const char* kNames[] = {"encode_pictures", "pack_slices"};
constexpr uint32_t kPackThreads = 256;
constexpr uint64_t kAlign = 256;
uint64_t aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// A picture of a call, and where it is while it is coded.
struct Picture {
  const uint8_t* host = nullptr;  // else in device memory
  CUdeviceptr samples = 0;
  size_t stride = 0;
  StreamParameters parameters;
  std::vector<uint8_t>* slice_data = nullptr;
  bool at_most = false;  // room for any slice, as the usual was too little

  uint64_t sample_bytes() const { return uint64_t{parameters.width} * parameters.height; }
  // As a rule a slice is shorter than its samples.
  uint64_t room() const {
    const uint64_t bytes = at_most ? max_slice_data_bytes(parameters) : sample_bytes();
    return aligned(bytes + 2 * kWarpBlockBytes);
  }
  uint64_t device_bytes() const { return room() + (host != nullptr ? aligned(sample_bytes()) : 0); }
};

class Encoder final : public CudaEncoder {
 public:
  static Result<std::unique_ptr<CudaEncoder>> create(const CudaEncoderOptions& options) {
    auto encoder = std::make_unique<Encoder>();
    KVCODEC_TRY(encoder->driver_, CudaDriver::open(options.device));
    const CudaScope scope(*encoder->driver_);
    KVCODEC_TRY(encoder->module_,
                CudaModule::load(*encoder->driver_, cuda_images().encoder, kNames));
    for (CUstream& stream : encoder->streams_) {
      KVCODEC_TRY(stream, encoder->driver_->new_low_priority_stream());
    }
    const WarpTables tables = make_warp_tables();
    KVCODEC_TRY(encoder->tables_, DeviceBuffer::allocate(*encoder->driver_, sizeof tables));
    KVCODEC_CHECK(encoder->check(
        encoder->cuda().cuMemcpyHtoD(encoder->tables_.data(), &tables, sizeof tables),
        "cuMemcpyHtoD"));
    encoder->max_bytes_ = options.max_device_bytes;
    encoder->device_buffers_.limit(options.max_device_bytes);
    encoder->host_buffers_.limit(options.max_device_bytes);
    encoder->host_threads_ =
        options.host_threads > 0 ? options.host_threads : std::min(4, resolve_threads(0));
    return std::unique_ptr<CudaEncoder>(std::move(encoder));
  }

  ~Encoder() override {
    if (driver_ == nullptr) return;
    const CudaScope scope(*driver_);
    for (CUstream stream : streams_)
      if (stream != nullptr) cuda().cuStreamDestroy(stream);
  }

  const std::string& gpu() const override { return driver_->gpu(); }

  Status encode(std::span<EncodeJob> jobs) override {
    std::vector<Picture> pictures(jobs.size());
    for (size_t i = 0; i < jobs.size(); ++i) {
      const PictureView& view = jobs[i].picture;
      pictures[i].host = view.samples;
      pictures[i].stride = view.stride;
      pictures[i].parameters = {view.width, view.height, jobs[i].persistent_rice};
      pictures[i].slice_data = jobs[i].slice_data;
    }
    return encode_all(std::move(pictures));
  }

  Status encode(std::span<CudaEncodeJob> jobs) override {
    std::vector<Picture> pictures(jobs.size());
    for (size_t i = 0; i < jobs.size(); ++i) {
      pictures[i].samples = jobs[i].samples;
      pictures[i].stride = jobs[i].stride;
      pictures[i].parameters = {jobs[i].width, jobs[i].height, jobs[i].persistent_rice};
      pictures[i].slice_data = jobs[i].slice_data;
    }
    return encode_all(std::move(pictures));
  }

 private:
  class Batch;
  const CudaFunctions& cuda() const { return driver_->cuda(); }
  Status check(CUresult result, const char* call) const { return driver_->check(result, call); }
  Status encode_all(std::vector<Picture> pictures);

  // Waits until so many bytes are free; a batch of one picture may be larger than the limit.
  void acquire(uint64_t bytes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return bytes_in_use_ == 0 || bytes_in_use_ + bytes <= max_bytes_; });
    bytes_in_use_ += bytes;
  }
  void release(uint64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      bytes_in_use_ -= bytes;
    }
    changed_.notify_all();
  }

  static constexpr size_t kStreams = 8;
  std::shared_ptr<const CudaDriver> driver_;
  std::unique_ptr<CudaModule> module_;
  CUstream streams_[kStreams] = {};
  std::atomic<size_t> next_stream_ = 0;
  DeviceBuffer tables_;
  int host_threads_ = 1;
  BufferPool<DeviceBuffer> device_buffers_;
  BufferPool<PinnedBuffer> host_buffers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t max_bytes_ = 0, bytes_in_use_ = 0;
};

// Pictures that are coded at once, on one stream.
class Encoder::Batch {
 public:
  Batch(Encoder& encoder, CUstream stream, std::span<Picture> pictures)
      : encoder_(encoder), stream_(stream), batch_(pictures) {}
  ~Batch() { static_cast<void>(cuda().cuStreamSynchronize(stream_)); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Pictures whose slices had too little room go to `again`.
  Status run(std::vector<Picture>& again);

 private:
  const CudaFunctions& cuda() const { return encoder_.cuda(); }
  Status check(CUresult result, const char* call) const { return encoder_.check(result, call); }
  Status place(const Picture& picture, uint64_t& at, WarpPicture& out);
  Status fetch(std::span<const uint32_t> bytes, uint64_t at_offsets, uint64_t at_bytes,
               std::vector<Picture>& again);

  Encoder& encoder_;
  const CUstream stream_;
  const std::span<Picture> batch_;
  PooledBuffer<DeviceBuffer> device_, packed_;
  PooledBuffer<PinnedBuffer> host_, slices_;
};

Status Encoder::encode_all(std::vector<Picture> pictures) {
  for (const Picture& picture : pictures) KVCODEC_CHECK(check_parameters(picture.parameters));
  // The largest first, so that none is begun when all others are done.
  std::stable_sort(pictures.begin(), pictures.end(), [](const Picture& a, const Picture& b) {
    return a.sample_bytes() > b.sample_bytes();
  });
  const CudaScope scope(*driver_);
  std::vector<Picture> again;
  for (std::vector<Picture>* list : {&pictures, &again}) {
    for (size_t first = 0; first < list->size();) {
      uint64_t bytes = 0;
      size_t end = first;
      for (; end < list->size(); ++end) {
        const uint64_t more = (*list)[end].device_bytes();
        if (end > first && bytes + more > max_bytes_ / 2) break;
        bytes += more;
      }
      acquire(bytes);
      Batch batch(*this, streams_[next_stream_++ % kStreams], {list->data() + first, end - first});
      Status status = batch.run(again);
      release(bytes);
      KVCODEC_CHECK(std::move(status));
      first = end;
    }
  }
  return ok_status();
}

// Device memory of a batch: what is uploaded (pictures, offsets), sizes, then samples and slices.
Status Encoder::Batch::run(std::vector<Picture>& again) {
  const std::span<Picture> batch = batch_;
  const size_t n = batch.size();
  const uint64_t at_offsets = aligned(n * sizeof(WarpPicture));
  const uint64_t at_bytes = at_offsets + aligned(n * sizeof(uint64_t));
  const uint64_t at_data = at_bytes + aligned(n * sizeof(uint32_t));
  const uint64_t total =
      std::accumulate(batch.begin(), batch.end(), at_data,
                      [](uint64_t sum, const Picture& p) { return sum + p.device_bytes(); });
  KVCODEC_TRY(device_, encoder_.device_buffers_.take(*encoder_.driver_, total));
  KVCODEC_TRY(host_, encoder_.host_buffers_.take(*encoder_.driver_, at_data));
  auto* pictures = reinterpret_cast<WarpPicture*>(host_->data());
  uint64_t at = at_data;
  for (size_t i = 0; i < n; ++i) KVCODEC_CHECK(place(batch[i], at, pictures[i]));
  KVCODEC_CHECK(check(
      cuda().cuMemcpyHtoDAsync(device_->data(), host_->data(), n * sizeof(WarpPicture), stream_),
      "cuMemcpyHtoDAsync"));
  // NOLINTBEGIN(performance-no-int-to-ptr): device addresses are integers to the host.
  const EncodeArguments arguments = {reinterpret_cast<const WarpPicture*>(device_->data()),
                                     reinterpret_cast<const WarpTables*>(encoder_.tables_.data()),
                                     reinterpret_cast<uint32_t*>(device_->data() + at_bytes),
                                     static_cast<uint32_t>(n)};
  // NOLINTEND(performance-no-int-to-ptr)
  KVCODEC_CHECK(encoder_.module_->launch(kEncodePictures, {arguments.count}, kWarpLanes, 0, stream_,
                                         &arguments));
  auto* bytes = reinterpret_cast<uint32_t*>(host_->data() + at_bytes);
  KVCODEC_CHECK(check(
      cuda().cuMemcpyDtoHAsync(bytes, device_->data() + at_bytes, n * sizeof(uint32_t), stream_),
      "cuMemcpyDtoHAsync"));
  KVCODEC_CHECK(check(cuda().cuStreamSynchronize(stream_), "cuStreamSynchronize"));
  return fetch({bytes, n}, at_offsets, at_bytes, again);
}

// Uploads samples that the host has, and fills what the kernel is told of a picture.
Status Encoder::Batch::place(const Picture& picture, uint64_t& at, WarpPicture& out) {
  CUdeviceptr samples = picture.samples;
  size_t stride = picture.stride;
  if (picture.host != nullptr) {
    samples = device_->data() + at;
    stride = picture.parameters.width;
    at += aligned(picture.sample_bytes());
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = picture.host;
    copy.srcPitch = picture.stride;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = samples;
    copy.dstPitch = copy.WidthInBytes = stride;
    copy.Height = picture.parameters.height;
    KVCODEC_CHECK(check(cuda().cuMemcpy2DAsync(&copy, stream_), "cuMemcpy2DAsync"));
  }
  // NOLINTBEGIN(performance-no-int-to-ptr)
  out.samples = reinterpret_cast<const uint8_t*>(samples);
  out.out = reinterpret_cast<uint32_t*>(device_->data() + at);
  // NOLINTEND(performance-no-int-to-ptr)
  out.stride = stride;
  out.width = picture.parameters.width;
  out.height = picture.parameters.height;
  out.persistent_rice = picture.parameters.persistent_rice ? 1 : 0;
  out.words = static_cast<uint32_t>(picture.room() / 4);
  at += picture.room();
  return ok_status();
}

// Slices to the host in one piece, and from there to the jobs.
Status Encoder::Batch::fetch(std::span<const uint32_t> bytes, uint64_t at_offsets,
                             uint64_t at_bytes, std::vector<Picture>& again) {
  auto* offsets = reinterpret_cast<uint64_t*>(host_->data() + at_offsets);
  uint64_t total = 0;
  for (size_t i = 0; i < batch_.size(); ++i) {
    offsets[i] = total;
    if (bytes[i] != kSliceTooLong) total += (bytes[i] + kPackAlign - 1) / kPackAlign * kPackAlign;
  }
  const uint64_t room = std::max<uint64_t>(total, 1);
  KVCODEC_TRY(packed_, encoder_.device_buffers_.take(*encoder_.driver_, room));
  KVCODEC_TRY(slices_, encoder_.host_buffers_.take(*encoder_.driver_, room));
  KVCODEC_CHECK(check(cuda().cuMemcpyHtoDAsync(device_->data() + at_offsets, offsets,
                                               batch_.size() * sizeof(uint64_t), stream_),
                      "cuMemcpyHtoDAsync"));
  // NOLINTBEGIN(performance-no-int-to-ptr)
  const PackArguments arguments = {reinterpret_cast<const WarpPicture*>(device_->data()),
                                   reinterpret_cast<const uint32_t*>(device_->data() + at_bytes),
                                   reinterpret_cast<const uint64_t*>(device_->data() + at_offsets),
                                   reinterpret_cast<uint8_t*>(packed_->data()),
                                   static_cast<uint32_t>(batch_.size())};
  // NOLINTEND(performance-no-int-to-ptr)
  KVCODEC_CHECK(encoder_.module_->launch(kPackSlices, {arguments.count}, kPackThreads, 0, stream_,
                                         &arguments));
  if (total > 0) {
    KVCODEC_CHECK(check(cuda().cuMemcpyDtoHAsync(slices_->data(), packed_->data(), total, stream_),
                        "cuMemcpyDtoHAsync"));
  }
  KVCODEC_CHECK(check(cuda().cuStreamSynchronize(stream_), "cuStreamSynchronize"));
  parallel_for(batch_.size(), encoder_.host_threads_, [&](size_t i, int) {
    if (bytes[i] == kSliceTooLong) return;
    const auto* slice = reinterpret_cast<const uint8_t*>(slices_->data()) + offsets[i];
    batch_[i].slice_data->assign(slice, slice + bytes[i]);
    insert_emulation_prevention(*batch_[i].slice_data, 0);
  });
  for (size_t i = 0; i < batch_.size(); ++i) {
    if (bytes[i] != kSliceTooLong) continue;
    if (batch_[i].at_most)
      return make_error(ErrorCode::internal, "a slice is longer than any slice can be");
    again.push_back(batch_[i]);
    again.back().at_most = true;
  }
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<CudaEncoder>> CudaEncoder::create(const CudaEncoderOptions& options) {
  return Encoder::create(options);
}

}  // namespace kvcodec::hevc
