// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "codec/chunk_decoder.h"
#include "hevc/nvdec.h"
#include "kvcodec/device.h"
#include "kvcodec/profile.h"
#include "restore/buffer_pool.h"
#include "restore/group_launcher.h"

namespace kvcodec::restore {
namespace {

// XXH3 has other formulas for 240 bytes and less; such pictures are decoded on the host.
constexpr uint64_t kMinCheckedBytes = 241;

bool needs_host_decoding(const format::Header& header) {
  for (const format::Picture& picture : header.pictures)
    if (through_nvdec(picture) && uint64_t{picture.rows} * header.tokens < kMinCheckedBytes)
      return true;
  return false;
}

Error picture_error(const format::Header& header, size_t index, const Error& error) {
  const format::Picture& picture = header.pictures[index];
  return make_error(error.code, "picture {} ({} rows from {}) at offset {}: {}", index,
                    kv_kind_name(picture.kind), picture.first_row, picture.offset, error.message);
}

Status check_payloads(const format::Header& header, std::span<const std::byte> object) {
  for (size_t i = 0; i < header.pictures.size(); ++i) {
    const format::Picture& picture = header.pictures[i];
    const uint64_t checksum = checksum64(object.subspan(picture.offset, picture.bytes));
    if (checksum == picture.payload_checksum) continue;
    return picture_error(header, i,
                         make_error(ErrorCode::corrupt,
                                    "checksum of the stored bytes: expected {:016x}, found {:016x}",
                                    picture.payload_checksum, checksum));
  }
  return ok_status();
}

class Restorer;

// One chunk in flight. The caller's thread makes, submits and finishes it; NVDEC's threads report
// pictures and launch groups.
class Chunk {
 public:
  Chunk(Restorer& restorer, DeviceRestoreJob& job) : restorer_(restorer), job_(job) {}

  Status prepare();
  uint64_t device_bytes() const { return image_.total_bytes; }
  Status submit();
  // Waits for everything and sets the job's status.
  void finish();
  DeviceRestoreJob& job() { return job_; }

 private:
  void submit_picture(size_t group, size_t index);
  void picture_done(size_t group, size_t index, Status status);
  void group_ready(size_t group);
  Status copy_to_staging(size_t index, const hevc::DevicePicture& picture, CUstream stream) const;
  ChunkLaunch launch() const;
  Status read_results();
  void fail(Error error);

  Restorer& restorer_;
  DeviceRestoreJob& job_;
  format::Header header_;
  ChunkImage image_;
  PooledBuffer<PinnedBuffer> host_;
  PooledBuffer<DeviceBuffer> memory_;
  const DeviceProfile* profile_ = nullptr;
  CUevent ended_ = nullptr;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<size_t> pictures_left_;  // by group, until staged
  size_t groups_left_ = 0;
  std::optional<Error> error_;  // the first
};

class Restorer final : public DeviceRestorer {
 public:
  static Result<std::unique_ptr<DeviceRestorer>> create(const DeviceOptions& options) {
    auto restorer = std::make_unique<Restorer>();
    KVCODEC_TRY(restorer->driver_, CudaDriver::open(options.device));
    const CudaScope scope(*restorer->driver_);
    KVCODEC_TRY(restorer->kernels_, CudaKernels::load(*restorer->driver_));
    KVCODEC_TRY(restorer->stream_, restorer->driver_->new_low_priority_stream());
    KVCODEC_TRY(restorer->pool_,
                hevc::NvdecPool::create({.device = options.device,
                                         .sessions = options.sessions,
                                         .max_device_bytes = options.max_device_bytes / 2}));
    restorer->budget_.emplace(options.max_device_bytes / 2);
    return std::unique_ptr<DeviceRestorer>(std::move(restorer));
  }

  ~Restorer() override {
    pool_.reset();
    if (driver_ == nullptr) return;
    const CudaScope scope(*driver_);
    if (stream_ != nullptr) driver_->cuda().cuStreamDestroy(stream_);
  }

  const std::string& gpu() const override { return driver_->gpu(); }

  void restore(std::span<DeviceRestoreJob> jobs) override {
    const CudaScope scope(*driver_);
    std::deque<std::unique_ptr<Chunk>> in_flight;
    const auto finish_oldest = [&] {
      const uint64_t bytes = in_flight.front()->device_bytes();
      in_flight.front()->finish();
      in_flight.pop_front();
      budget_->release(bytes);
    };
    for (DeviceRestoreJob& job : jobs) {
      auto chunk = std::make_unique<Chunk>(*this, job);
      if (job.status = chunk->prepare(); !job.status.ok()) continue;
      const uint64_t bytes = chunk->device_bytes();
      if (bytes > budget_->limit()) {
        job.status = make_error(ErrorCode::out_of_memory,
                                "the chunk needs {} bytes of device memory, the limit leaves {}",
                                bytes, budget_->limit());
        continue;
      }
      while (!budget_->try_acquire(bytes)) {
        if (in_flight.empty()) {
          budget_->acquire(bytes);
          break;
        }
        finish_oldest();
      }
      in_flight.push_back(std::move(chunk));
      if (Status status = in_flight.back()->submit(); !status.ok()) {
        job.status = std::move(status);
        budget_->release(bytes);
        in_flight.pop_back();
      }
    }
    while (!in_flight.empty()) finish_oldest();
  }

  // Kept for as long as the restorer lives.
  Result<const DeviceProfile*> device_profile(const Profile& profile) {
    const std::lock_guard lock(profiles_mutex_);
    const auto known = profiles_.find(profile.digest());
    if (known != profiles_.end()) return &known->second;
    KVCODEC_TRY(auto uploaded, upload_profile(*driver_, profile));
    return &profiles_.emplace(profile.digest(), std::move(uploaded)).first->second;
  }

  const CudaDriver& driver() const { return *driver_; }
  const CudaKernels& kernels() const { return *kernels_; }
  CUstream stream() const { return stream_; }
  std::mutex& launch_mutex() { return launch_mutex_; }
  hevc::NvdecPool& pool() { return *pool_; }
  BufferPool<PinnedBuffer>& host_buffers() { return host_buffers_; }
  BufferPool<DeviceBuffer>& device_buffers() { return device_buffers_; }

 private:
  struct DigestOrder {
    bool operator()(const Digest& a, const Digest& b) const { return to_hex(a) < to_hex(b); }
  };
  std::shared_ptr<const CudaDriver> driver_;
  std::unique_ptr<CudaKernels> kernels_;
  CUstream stream_ = nullptr;
  std::mutex launch_mutex_;  // a group's kernels share scratch memory: they go in one piece
  std::mutex profiles_mutex_;
  std::map<Digest, DeviceProfile, DigestOrder> profiles_;
  BufferPool<PinnedBuffer> host_buffers_;
  BufferPool<DeviceBuffer> device_buffers_;
  std::optional<Budget> budget_;
  std::unique_ptr<hevc::NvdecPool> pool_;  // destroyed first: its threads use the rest
};

Status Chunk::prepare() {
  const KvGeometry* geometry = job_.target.geometry;
  KVCODEC_TRY(header_, check_request(job_.object, geometry, job_.target.bytes, job_.first_token,
                                     job_.options));
  if (is_calibrated(header_.tier)) {
    if (header_.basis == format::Basis::identity) {
      return make_error(ErrorCode::unsupported,
                        "chunks of an identity profile are restored on the host only");
    }
    KVCODEC_TRY(profile_, restorer_.device_profile(*job_.options.profile));
  }
  KVCODEC_CHECK(check_payloads(header_, job_.object));
  std::vector<PictureContent> decoded;
  if (needs_host_decoding(header_)) {
    KVCODEC_TRY(DecodedChunk chunk, decode_pictures(job_.object, header_, job_.options, 1));
    decoded = std::move(chunk.contents);
  }
  image_ = build_image(header_, job_.object, decoded, *geometry);
  groups_left_ = image_.groups.size();
  for (const GroupImage& group : image_.groups) {
    size_t pictures = 0;
    if (decoded.empty()) pictures = group.plan.symbols.size();
    pictures_left_.push_back(pictures);
  }
  return ok_status();
}

Status Chunk::submit() {
  const CudaDriver& driver = restorer_.driver();
  KVCODEC_TRY(host_, restorer_.host_buffers().take(driver, image_.bytes.size()));
  KVCODEC_TRY(memory_, restorer_.device_buffers().take(driver, image_.total_bytes));
  KVCODEC_CHECK(
      driver.check(driver.cuda().cuEventCreate(&ended_, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  std::memcpy(host_->data(), image_.bytes.data(), image_.bytes.size());
  {
    const std::lock_guard lock(restorer_.launch_mutex());
    const CUstream stream = restorer_.stream();
    KVCODEC_CHECK(driver.check(driver.cuda().cuMemcpyHtoDAsync(memory_->data(), host_->data(),
                                                               image_.bytes.size(), stream),
                               "cuMemcpyHtoDAsync"));
    KVCODEC_CHECK(
        driver.check(driver.cuda().cuMemsetD8Async(memory_->data() + image_.results, 0, 4, stream),
                     "cuMemsetD8Async"));
    KVCODEC_CHECK(launch_start(restorer_.kernels(), launch(), stream));
  }
  // From here on every group ends in group_ready(), whatever happens to it.
  for (size_t group = 0; group < image_.groups.size(); ++group) {
    if (pictures_left_[group] == 0) group_ready(group);
    for (size_t index : image_.groups[group].plan.symbols) {
      if (pictures_left_[group] > 0) submit_picture(group, index);
    }
  }
  return ok_status();
}

void Chunk::submit_picture(size_t group, size_t index) {
  const format::Picture& picture = header_.pictures[index];
  const auto payload = job_.object.subspan(picture.offset, picture.bytes);
  hevc::NvdecJob request;
  request.parameters = {picture.width, picture.height, picture.coding == format::Coding::hevc_rice};
  request.slice_data = {reinterpret_cast<const uint8_t*>(payload.data()), payload.size()};
  request.use = [this, index](const hevc::DevicePicture& decoded, void* stream) {
    return copy_to_staging(index, decoded, static_cast<CUstream>(stream));
  };
  request.done = [this, group, index](Status status) {
    picture_done(group, index, std::move(status));
  };
  if (through_nvdec(picture)) return restorer_.pool().submit(std::move(request));
  // Stored raw: straight into staging.
  const CudaDriver& driver = restorer_.driver();
  picture_done(
      group, index,
      driver.check(driver.cuda().cuMemcpyHtoD(memory_->data() + image_.picture_samples[index],
                                              payload.data(), payload.size()),
                   "cuMemcpyHtoD"));
}

Status Chunk::copy_to_staging(size_t index, const hevc::DevicePicture& picture,
                              CUstream stream) const {
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = picture.samples;
  copy.srcPitch = picture.pitch;
  copy.dstDevice = memory_->data() + image_.picture_samples[index];
  copy.dstPitch = copy.WidthInBytes = header_.tokens;
  copy.Height = header_.pictures[index].rows;
  const CudaDriver& driver = restorer_.driver();
  return driver.check(driver.cuda().cuMemcpy2DAsync(&copy, stream), "cuMemcpy2DAsync");
}

void Chunk::picture_done(size_t group, size_t index, Status status) {
  if (!status.ok()) fail(picture_error(header_, index, status.error()));
  bool ready = false;
  {
    const std::lock_guard lock(mutex_);
    ready = --pictures_left_[group] == 0;
  }
  if (ready) group_ready(group);
}

void Chunk::group_ready(size_t group) {
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    failed = error_.has_value();
  }
  if (!failed) {
    const std::lock_guard lock(restorer_.launch_mutex());
    const Status status = launch_group(restorer_.kernels(), launch(), group, restorer_.stream());
    if (!status.ok()) fail(status.error());
  }
  // The last to hold the lock may be the last to see this chunk.
  const std::lock_guard lock(mutex_);
  if (--groups_left_ == 0) changed_.notify_all();
}

ChunkLaunch Chunk::launch() const {
  return {header_,     image_,           memory_->data(),
          job_.target, job_.first_token, job_.options.position.value_or(header_.id.first_token),
          profile_};
}

void Chunk::fail(Error error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
}

void Chunk::finish() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return groups_left_ == 0; });
  }
  const Status results = read_results();
  if (error_) {
    job_.status = std::move(*error_);
  } else {
    job_.status = results;
  }
  restorer_.driver().cuda().cuEventDestroy(ended_);
}

// Waits for the chunk's kernels, whose memory is given back after this, and reads what they found.
Status Chunk::read_results() {
  const CudaDriver& driver = restorer_.driver();
  std::vector<uint64_t> results(1 + image_.checks);
  {
    const std::lock_guard lock(restorer_.launch_mutex());
    KVCODEC_CHECK(
        driver.check(driver.cuda().cuEventRecord(ended_, restorer_.stream()), "cuEventRecord"));
  }
  KVCODEC_CHECK(driver.check(driver.cuda().cuEventSynchronize(ended_), "cuEventSynchronize"));
  KVCODEC_CHECK(
      driver.check(driver.cuda().cuMemcpyDtoH(results.data(), memory_->data() + image_.results,
                                              results.size() * sizeof(uint64_t)),
                   "cuMemcpyDtoH"));
  if (static_cast<uint32_t>(results[0]) == 0 || error_) return ok_status();
  size_t check = 1;
  for (const GroupImage& group : image_.groups) {
    for (size_t index : group.plan.symbols) {
      const format::Picture& picture = header_.pictures[index];
      if (!through_nvdec(picture)) continue;
      const uint64_t found = results[check++];
      if (found == picture.content_checksum) continue;
      return picture_error(
          header_, index,
          make_error(ErrorCode::corrupt,
                     "checksum of the decoded samples: expected {:016x}, found {:016x}",
                     picture.content_checksum, found));
    }
  }
  return make_error(ErrorCode::internal, "a checksum kernel reports a fault that is not there");
}

}  // namespace
}  // namespace kvcodec::restore

namespace kvcodec {

Result<std::unique_ptr<DeviceRestorer>> DeviceRestorer::create(const DeviceOptions& options) {
  return restore::Restorer::create(options);
}

}  // namespace kvcodec
