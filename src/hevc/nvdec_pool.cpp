// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "hevc/nvdec_session.h"
#include "hevc/stream.h"

namespace kvcodec::hevc {
namespace {

struct QueuedJob {
  NvdecJob job;
  bool retried = false;  // after a device error
  int skipped = 0;       // how often a later job of the session's own size went first
};

// Jobs by priority, then order. Thread-safe.
class JobQueue {
 public:
  void push(QueuedJob job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_[job.job.priority].push_back(std::move(job));
    }
    changed_.notify_one();
  }

  void push_front(QueuedJob job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_[job.job.priority].push_front(std::move(job));
    }
    changed_.notify_one();
  }

  // The next job, among those of the highest priority rather one that `session` accepts as it is:
  // another size costs it a pause. Nothing where there is none, or, if `wait`, only after close().
  std::optional<QueuedJob> take(const NvdecSession& session, bool wait) {
    std::unique_lock lock(mutex_);
    if (wait) changed_.wait(lock, [&] { return closed_ || !jobs_.empty(); });
    if (jobs_.empty()) return std::nullopt;
    auto& first = jobs_.begin()->second;
    auto chosen = first.begin();
    if (chosen->skipped < kMaxSkips) {
      int distance = 0;
      for (auto at = first.begin(); at != first.end() && distance < kMaxLookAhead;
           ++at, ++distance) {
        if (!session.accepts(at->job.parameters)) continue;
        chosen = at;
        break;
      }
    }
    if (chosen != first.begin()) ++first.front().skipped;
    QueuedJob job = std::move(*chosen);
    first.erase(chosen);
    if (first.empty()) jobs_.erase(jobs_.begin());
    return job;
  }

  // Wakes all who wait; the jobs left are returned.
  std::vector<QueuedJob> close() {
    std::vector<QueuedJob> left;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      for (auto& [priority, jobs] : jobs_)
        std::move(jobs.begin(), jobs.end(), std::back_inserter(left));
      jobs_.clear();
    }
    changed_.notify_all();
    return left;
  }

 private:
  static constexpr int kMaxSkips = 16, kMaxLookAhead = 64;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::list<QueuedJob>, std::greater<>> jobs_;
  bool closed_ = false;
};

struct Counters {
  std::atomic<uint64_t> pictures = 0, refused = 0, failed = 0, created = 0, reconfigured = 0,
                        retried = 0;
};

// What one thread does with one session.
class Worker {
 public:
  Worker(const NvdecDriver& driver, uint64_t max_bytes, int stream_priority,
         LargestPicture& largest, JobQueue& queue, Counters& counters)
      : driver_(driver),
        max_bytes_(max_bytes),
        stream_priority_(stream_priority),
        largest_(largest),
        queue_(queue),
        counters_(counters) {}

  void run() {
    const CudaScope scope(driver_.driver());
    session_.emplace(driver_, max_bytes_, stream_priority_, largest_);
    for (;;) {
      fill();
      if (next_ && decoding_.empty() && mapped_.empty()) {
        configure();
      } else if (!decoding_.empty()) {
        if (mapped_.size() == kMaxMapped) finish();
        if (!decoding_.empty()) map();
      } else if (!mapped_.empty()) {
        finish();
      } else if (!next_ && !wait()) {
        break;
      }
    }
    session_.reset();
  }

 private:
  struct InFlight {
    QueuedJob queued;
    int slot = 0;
    Status status = ok_status();  // of `use`
  };
  static constexpr size_t kMaxMapped = 2;

  bool wait() {
    next_ = queue_.take(*session_, true);
    return next_.has_value();
  }

  // Starts pictures until the session is full, the queue is empty or one needs another size.
  void fill() {
    while (in_flight() < std::max<size_t>(1, session_->depth())) {
      if (!next_) next_ = queue_.take(*session_, false);
      if (!next_) return;
      if (next_->job.stop.stop_requested()) {
        end(*std::exchange(next_, std::nullopt),
            make_error(ErrorCode::cancelled, "NVDEC: cancelled before decoding"));
      } else if (session_->accepts(next_->job.parameters)) {
        start();
      } else {
        return;
      }
    }
  }
  size_t in_flight() const { return decoding_.size() + mapped_.size(); }

  void start() {
    const int slot = free_slot();
    InFlight picture{*std::exchange(next_, std::nullopt), slot};
    const Status status = session_->submit(slot, picture.queued.job.slice_data);
    decoding_.push_back(std::move(picture));
    if (!status.ok()) recover(status.error());
  }

  int free_slot() const {
    for (int slot = 0;; ++slot) {
      const auto uses = [&](const InFlight& picture) { return picture.slot == slot; };
      if (std::none_of(decoding_.begin(), decoding_.end(), uses) &&
          std::none_of(mapped_.begin(), mapped_.end(), uses)) {
        return slot;
      }
    }
  }

  void configure() {
    bool created = false;
    const Status status = session_->configure(next_->job.parameters, created);
    ++(created ? counters_.created : counters_.reconfigured);
    if (status.ok()) return;
    if (status.error().code != ErrorCode::device) {
      end(*std::exchange(next_, std::nullopt), status);
      return;
    }
    decoding_.push_back({*std::exchange(next_, std::nullopt)});
    recover(status.error());
  }

  void map() {
    InFlight& picture = decoding_.front();
    Result<DevicePicture> decoded = session_->map(picture.slot);
    if (!decoded.ok() && decoded.error().code == ErrorCode::device) return recover(decoded.error());
    picture.status = decoded.ok() ? picture.queued.job.use(*decoded, session_->stream())
                                  : Status(decoded.error());
    mapped_.push_back(std::move(picture));
    decoding_.pop_front();
    if (const Status marked = session_->mark(mapped_.back().slot); !marked.ok()) {
      recover(marked.error());
    }
  }

  void finish() {
    if (const Status ended = session_->unmap(mapped_.front().slot); !ended.ok()) {
      return recover(ended.error());
    }
    InFlight picture = std::move(mapped_.front());
    mapped_.pop_front();
    end(picture.queued, std::move(picture.status));
  }

  // After a device error: a fresh session; what had not been used yet is decoded once more.
  void recover(const Error& error) {
    session_.emplace(driver_, max_bytes_, stream_priority_, largest_);
    for (auto picture = decoding_.rbegin(); picture != decoding_.rend(); ++picture) {
      if (picture->queued.retried) {
        end(picture->queued, Error(error));
        continue;
      }
      picture->queued.retried = true;
      ++counters_.retried;
      queue_.push_front(std::move(picture->queued));
    }
    decoding_.clear();
    for (InFlight& picture : mapped_) end(picture.queued, Error(error));
    mapped_.clear();
  }

  void end(QueuedJob& queued, Status status) {
    if (status.ok()) {
      ++counters_.pictures;
    } else if (status.error().code == ErrorCode::corrupt) {
      ++counters_.refused;
    } else if (status.error().code != ErrorCode::cancelled) {
      ++counters_.failed;
    }
    const NvdecJob job = std::move(queued.job);
    job.done(std::move(status));
  }
  void end(QueuedJob&& queued, Status status) { end(queued, std::move(status)); }

  const NvdecDriver& driver_;
  const uint64_t max_bytes_;
  const int stream_priority_;
  LargestPicture& largest_;
  JobQueue& queue_;
  Counters& counters_;
  std::optional<NvdecSession> session_;
  std::optional<QueuedJob> next_;  // taken, not started
  std::deque<InFlight> decoding_, mapped_;
};

Status check_job(const NvdecJob& job) {
  KVCODEC_CHECK(check_parameters(job.parameters));
  return check_slice_data(job.parameters, job.slice_data);
}

class Pool final : public NvdecPool {
 public:
  Pool(std::unique_ptr<NvdecDriver> driver, const NvdecOptions& options)
      : driver_(std::move(driver)) {
    const int sessions =
        options.sessions > 0 ? options.sessions : static_cast<int>(driver_->info().engines) + 1;
    for (int i = 0; i < sessions; ++i) {
      workers_.emplace_back([this, max_bytes = options.max_device_bytes / sessions,
                             priority = options.stream_priority] {
        Worker(*driver_, max_bytes, priority, largest_, queue_, counters_).run();
      });
    }
  }

  ~Pool() override {
    std::vector<QueuedJob> left = queue_.close();
    workers_.clear();  // joins
    for (QueuedJob& queued : queue_.close()) left.push_back(std::move(queued));
    for (const QueuedJob& queued : left) {
      queued.job.done(make_error(ErrorCode::cancelled, "NVDEC: the pool was closed"));
    }
  }

  const NvdecInfo& info() const override { return driver_->info(); }

  void submit(NvdecJob job) override {
    if (Status status = check_job(job); !status.ok()) {
      ++counters_.refused;
      job.done(std::move(status));
      return;
    }
    queue_.push({std::move(job)});
  }

  NvdecStats stats() const override {
    return {counters_.pictures, counters_.refused,      counters_.failed,
            counters_.created,  counters_.reconfigured, counters_.retried};
  }

 private:
  const std::unique_ptr<NvdecDriver> driver_;
  LargestPicture largest_;
  JobQueue queue_;
  Counters counters_;
  std::vector<std::jthread> workers_;
};

}  // namespace

Result<std::unique_ptr<NvdecPool>> NvdecPool::create(const NvdecOptions& options) {
  KVCODEC_TRY(auto driver, NvdecDriver::open(options.device));
  return std::unique_ptr<NvdecPool>(std::make_unique<Pool>(std::move(driver), options));
}

}  // namespace kvcodec::hevc
