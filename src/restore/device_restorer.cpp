// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "base/cuda_pool.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "codec/chunk_decoder.h"
#include "hevc/nvdec.h"
#include "kvcodec/device.h"
#include "kvcodec/profile.h"
#include "restore/group_launcher.h"

namespace kvcodec::restore {
namespace {

// XXH3 has other formulas for 240 bytes and less; such pictures are decoded on the host.
constexpr uint64_t kMinCheckedBytes = 241;
// Enough that the small kernels of one chunk run beside the products of others.
constexpr size_t kLanes = 4;

// A stream with the scratch memory that groups of its chunks use one after another.
struct Lane {
  CUstream stream = nullptr;
  std::mutex mutex;  // kernels of a group go to the stream in one piece
  DeviceBuffer scratch;
};

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
  uint64_t device_bytes() const { return BufferPool<DeviceBuffer>::rounded(image_.total_bytes); }
  uint64_t scratch_bytes() const { return image_.scratch_bytes; }
  // Before submit().
  void use(Lane& lane) {
    lane_ = &lane;
    stream_ = lane.stream;
  }
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
  Lane* lane_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent ended_ = nullptr;  // the chunk's kernels

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
    for (Lane& lane : restorer->lanes_) {
      KVCODEC_TRY(lane.stream, restorer->driver_->new_stream(options.stream_priority));
    }
    KVCODEC_TRY(restorer->pool_,
                hevc::NvdecPool::create({.device = options.device,
                                         .sessions = options.sessions,
                                         .max_device_bytes = options.max_device_bytes / 2,
                                         .stream_priority = options.stream_priority}));
    restorer->host_threads_ =
        options.host_threads > 0 ? options.host_threads : std::min(4, resolve_threads(0));
    restorer->max_bytes_ = options.max_device_bytes / 2;
    restorer->device_buffers_.limit(restorer->max_bytes_);
    restorer->host_buffers_.limit(options.max_device_bytes);
    return std::unique_ptr<DeviceRestorer>(std::move(restorer));
  }

  ~Restorer() override {
    pool_.reset();
    if (driver_ == nullptr) return;
    const CudaScope scope(*driver_);
    for (Lane& lane : lanes_)
      if (lane.stream != nullptr) driver_->cuda().cuStreamDestroy(lane.stream);
  }

  const std::string& gpu() const override { return driver_->gpu(); }

  void restore(std::span<DeviceRestoreJob> jobs) override {
    Call call;
    parallel_for(jobs.size(), host_threads_, [&](size_t i, int) {
      const CudaScope scope(*driver_);
      jobs[i].status = start(jobs[i], call);
    });
    const CudaScope scope(*driver_);
    std::unique_lock lock(mutex_);
    while (call.unfinished > 0) {
      if (!finish_one(lock, &call)) changed_.wait(lock);
    }
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
  hevc::NvdecPool& pool() { return *pool_; }
  BufferPool<PinnedBuffer>& host_buffers() { return host_buffers_; }
  BufferPool<DeviceBuffer>& device_buffers() { return device_buffers_; }

 private:
  struct Call {
    size_t unfinished = 0;  // its chunks in flight
  };
  struct InFlight {
    std::unique_ptr<Chunk> chunk;
    Call* call = nullptr;
  };

  // Begins a chunk, once there is memory for it. Who waits for memory ends chunks in flight,
  // whosever they are: none holds memory that nobody would free.
  Status start(DeviceRestoreJob& job, Call& call) {
    if (job.stop.stop_requested())
      return make_error(ErrorCode::cancelled, "the chunk was cancelled before it was begun");
    auto chunk = std::make_unique<Chunk>(*this, job);
    KVCODEC_CHECK(chunk->prepare());
    const uint64_t bytes = chunk->device_bytes();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !changing_scratch_; });
    KVCODEC_CHECK(fit_scratch(*chunk, lock));
    while (bytes > max_bytes_ - lanes_in_use_ * scratch_bytes_ - bytes_in_use_) {
      if (!finish_one(lock, nullptr)) changed_.wait(lock);
    }
    chunk->use(lanes_[next_lane_++ % lanes_in_use_]);
    bytes_in_use_ += bytes;
    lock.unlock();
    Status status = chunk->submit();
    lock.lock();
    if (status.ok()) {
      in_flight_.push_back({std::move(chunk), &call});
      ++call.unfinished;
    } else {
      bytes_in_use_ -= bytes;
    }
    changed_.notify_all();
    return status;
  }

  // Makes all lanes' scratch memory enough for a chunk. Other sizes are rare, and wait for all that
  // is in flight.
  Status fit_scratch(const Chunk& chunk, std::unique_lock<std::mutex>& lock) {
    const uint64_t needed = std::max<uint64_t>(chunk.scratch_bytes(), 1);
    const auto fits = [&](uint64_t scratch) {
      return scratch + chunk.device_bytes() <= max_bytes_;
    };
    if (needed <= scratch_bytes_ && fits(lanes_in_use_ * scratch_bytes_)) return ok_status();
    if (!fits(needed)) {
      return make_error(ErrorCode::out_of_memory,
                        "the chunk needs {} bytes of device memory, the limit leaves {}",
                        needed + chunk.device_bytes(), max_bytes_);
    }
    changing_scratch_ = true;
    while (bytes_in_use_ > 0) {
      if (!finish_one(lock, nullptr)) changed_.wait(lock);
    }
    for (Lane& lane : lanes_) lane.scratch = DeviceBuffer();
    if (scratch_bytes_ < needed || !fits(scratch_bytes_)) scratch_bytes_ = needed;
    // At most half of the memory, where one lane's is not more.
    lanes_in_use_ = std::clamp<uint64_t>(max_bytes_ / 2 / scratch_bytes_, 1, kLanes);
    while (lanes_in_use_ > 1 && !fits(lanes_in_use_ * scratch_bytes_)) --lanes_in_use_;
    Status status = ok_status();
    for (size_t i = 0; i < lanes_in_use_ && status.ok(); ++i) {
      auto buffer = DeviceBuffer::allocate(*driver_, scratch_bytes_);
      if (buffer.ok()) {
        lanes_[i].scratch = *std::move(buffer);
      } else {
        status = buffer.error();
        scratch_bytes_ = 0;
      }
    }
    changing_scratch_ = false;
    changed_.notify_all();
    return status;
  }

  // Ends the oldest chunk in flight, of `call` if given. False where there is none.
  bool finish_one(std::unique_lock<std::mutex>& lock, const Call* call) {
    const auto oldest =
        std::find_if(in_flight_.begin(), in_flight_.end(),
                     [call](const InFlight& f) { return call == nullptr || f.call == call; });
    if (oldest == in_flight_.end()) return false;
    InFlight ending = std::move(*oldest);
    in_flight_.erase(oldest);
    lock.unlock();
    const uint64_t bytes = ending.chunk->device_bytes();
    ending.chunk->finish();
    ending.chunk.reset();
    lock.lock();
    bytes_in_use_ -= bytes;
    --ending.call->unfinished;
    changed_.notify_all();
    return true;
  }

  struct DigestOrder {
    bool operator()(const Digest& a, const Digest& b) const { return to_hex(a) < to_hex(b); }
  };
  std::shared_ptr<const CudaDriver> driver_;
  std::unique_ptr<CudaKernels> kernels_;
  std::mutex profiles_mutex_;
  std::map<Digest, DeviceProfile, DigestOrder> profiles_;
  BufferPool<PinnedBuffer> host_buffers_;
  BufferPool<DeviceBuffer> device_buffers_;
  int host_threads_ = 1;
  uint64_t max_bytes_ = 0;  // of chunks in flight
  std::mutex mutex_;
  std::condition_variable changed_;  // bytes_in_use_, in_flight_ or a call's chunks
  uint64_t bytes_in_use_ = 0;        // of chunks in flight, scratch memory apart
  // Chunks take turns, so that the kernels of one overlap those of another.
  std::array<Lane, kLanes> lanes_;
  uint64_t lanes_in_use_ = 1, scratch_bytes_ = 0;  // of each
  size_t next_lane_ = 0;
  bool changing_scratch_ = false;
  std::deque<InFlight> in_flight_;         // oldest first
  std::unique_ptr<hevc::NvdecPool> pool_;  // destroyed first: its threads use the rest
};

Status Chunk::prepare() {
  const KvGeometry* geometry = job_.target.geometry;
  KVCODEC_TRY(header_, check_request(job_.object, geometry, job_.target.bytes, job_.first_token,
                                     job_.options));
  if (header_.has_basis()) {
    KVCODEC_TRY(profile_, restorer_.device_profile(*job_.options.profile));
  }
  KVCODEC_CHECK(check_payloads(header_, job_.object));
  std::vector<PictureContent> decoded;
  if (needs_host_decoding(header_)) {
    DecodeOptions options = job_.options;
    options.threads = 1;
    KVCODEC_TRY(DecodedChunk chunk, decode_pictures(job_.object, header_, options));
    decoded = std::move(chunk.contents);
  }
  KVCODEC_TRY(host_,
              restorer_.host_buffers().take(
                  restorer_.driver(), max_upload_bytes(header_, job_.object.size(), *geometry)));
  image_ = build_image(header_, job_.object, decoded, *geometry, {host_->data(), host_->size()});
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
  KVCODEC_TRY(memory_, restorer_.device_buffers().take(driver, image_.total_bytes));
  KVCODEC_CHECK(
      driver.check(driver.cuda().cuEventCreate(&ended_, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  KVCODEC_CHECK(driver.check(
      driver.cuda().cuMemcpyHtoDAsync(memory_->data(), host_->data(), image_.upload_bytes, stream_),
      "cuMemcpyHtoDAsync"));
  KVCODEC_CHECK(
      driver.check(driver.cuda().cuMemsetD8Async(memory_->data() + image_.results, 0, 4, stream_),
                   "cuMemsetD8Async"));
  KVCODEC_CHECK(launch_start(restorer_.kernels(), launch(), stream_));
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
  request.stop = job_.stop;
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
  // The last to hold the lock may be the last to see this chunk.
  const std::lock_guard lock(mutex_);
  if (!error_) {
    const std::lock_guard lane_lock(lane_->mutex);
    if (Status status = launch_group(restorer_.kernels(), launch(), group, stream_); !status.ok())
      error_ = std::move(status.error());
  }
  if (--groups_left_ > 0) return;
  const CudaDriver& driver = restorer_.driver();
  Status status = error_ ? ok_status() : launch_checks(restorer_.kernels(), launch(), stream_);
  if (status.ok())
    status = driver.check(driver.cuda().cuEventRecord(ended_, stream_), "cuEventRecord");
  if (!status.ok() && !error_) error_ = std::move(status.error());
  changed_.notify_all();
}

ChunkLaunch Chunk::launch() const {
  return {header_,
          image_,
          memory_->data(),
          lane_->scratch.data(),
          job_.target,
          job_.first_token,
          job_.options.position.value_or(header_.id.first_token),
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
