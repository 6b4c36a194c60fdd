// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "hevc/decoder.h"
#include "hevc/decoder_variants.h"

namespace kvcodec::hevc {
namespace {

// From this many pictures on lanes are faster than the scalar code (hevc_decode_bench: one lane of
// AVX-512 is half as fast, and more lanes cost next to nothing); the scalar code gains more from
// sparse pictures. Four lanes never pay by much.
size_t min_pictures_for(const DecoderOps& lanes, bool sparse) {
  if (lanes.lanes < 8) return SIZE_MAX;
  return (lanes.lanes < 16 ? 4 : 3) + (sparse ? 2 : 0);
}
constexpr uint64_t kSparseEighths = 12;  // of a bit a sample: fewer are sparse

const DecoderOps& one_by_one() {
  const DecoderOps* bmi2 = bmi2_decoder();
  return bmi2 != nullptr ? *bmi2 : kScalarDecoder;
}

const DecoderOps& variant_for(size_t pictures, bool sparse) {
  const std::span<const DecoderOps> lanes = lane_decoders();
  const bool few = lanes.empty() || pictures < min_pictures_for(lanes.back(), sparse);
  return few ? one_by_one() : lanes.back();
}

// Jobs of all callers, decoded by the threads of those who wait for them. Allocates nothing once
// work has begun, so that nothing can fail then.
class JobPool {
 public:
  explicit JobPool(int threads) : max_workers_(static_cast<size_t>(threads)) {}

  // Returns when all have their fault or samples. The calling thread and up to threads - 1 others
  // work meanwhile, also on jobs of other callers.
  void run(std::span<SliceJob> jobs, int threads) {
    Batch batch{jobs, 0, jobs.size()};
    const auto workers = std::min(jobs.size(), static_cast<size_t>(threads));
    {
      const std::lock_guard lock(mutex_);
      batches_.push_back(&batch);
      outstanding_ += jobs.size();
      for (const SliceJob& job : jobs) {
        bytes_ += job.slice_data.size();
        samples_ += samples_of(job);
      }
      announced_ += workers;
    }
    changed_.notify_all();
    parallel_for(workers, threads, [&](size_t, int) { work(batch); });
    const std::lock_guard lock(mutex_);
    announced_ -= workers;
    std::erase(batches_, &batch);
  }

 private:
  static uint64_t samples_of(const SliceJob& job) {
    return uint64_t{job.parameters.width} * job.parameters.height;
  }

  struct Batch {
    std::span<SliceJob> jobs;
    size_t begun, unfinished;
  };

  // What one worker decodes.
  class Source final : public JobSource {
   public:
    Source(JobPool& pool, const Batch& batch) : pool_(pool), batch_(batch) {}
    SliceJob* take() override { return pool_.take(*this); }
    void finish(SliceJob& job) override { pool_.finish(*this, job); }

   private:
    friend class JobPool;
    JobPool& pool_;
    const Batch& batch_;  // of the worker's caller
    size_t held_ = 0;     // taken and not finished
  };

  // Until the batch is finished: decodes while there is a job and a worker's place, else waits.
  void work(const Batch& batch) {
    std::unique_lock lock(mutex_);
    while (batch.unfinished > 0) {
      if (next_batch() == nullptr || workers_ >= max_workers_) {
        changed_.wait(lock);
        continue;
      }
      ++workers_;
      const DecoderOps& variant = variant_for(share(), 64 * bytes_ < kSparseEighths * samples_);
      lock.unlock();
      Source source(*this, batch);
      variant.decode(source);
      lock.lock();
      --workers_;
      changed_.notify_all();
    }
  }

  // Oldest batch with jobs that nobody has begun.
  Batch* next_batch() const {
    for (Batch* batch : batches_)
      if (batch->begun < batch->jobs.size()) return batch;
    return nullptr;
  }

  // Jobs that a worker should have at once, so that all have some.
  size_t share() const {
    const size_t workers = std::max<size_t>(1, std::min(announced_, max_workers_));
    return (outstanding_ + workers - 1) / workers;
  }

  SliceJob* take(Source& source) {
    const std::lock_guard lock(mutex_);
    // A worker whose caller has its pictures ends with what it has begun.
    if (source.batch_.unfinished == 0 || source.held_ >= share()) return nullptr;
    Batch* batch = next_batch();
    if (batch == nullptr) return nullptr;
    ++source.held_;
    return &batch->jobs[batch->begun++];
  }

  void finish(Source& source, const SliceJob& job) {
    const std::lock_guard lock(mutex_);
    --source.held_;
    --outstanding_;
    bytes_ -= job.slice_data.size();
    samples_ -= samples_of(job);
    for (Batch* batch : batches_) {
      const SliceJob* first = batch->jobs.data();
      if (std::less<>()(&job, first) || !std::less<>()(&job, first + batch->jobs.size())) continue;
      if (--batch->unfinished == 0) changed_.notify_all();
      return;
    }
  }

  const size_t max_workers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Batch*> batches_;  // of the callers in run(), oldest first
  size_t outstanding_ = 0;       // jobs that are not finished, and what they have
  uint64_t bytes_ = 0, samples_ = 0;
  size_t announced_ = 0;  // threads that callers bring
  size_t workers_ = 0;    // of them, decoding
};

class SoftwareDecoder final : public Decoder {
 public:
  explicit SoftwareDecoder(int threads)
      : threads_(threads), pool_(threads), general_(create_general_decoder(threads)) {}

  const char* name() const override { return "software"; }

  void decode(std::span<DecodeJob> jobs, int threads) override {
    threads = threads > 0 ? std::min(threads, threads_) : threads_;
    std::vector<size_t> order = check_jobs(jobs);
    std::vector<SliceJob> slices;
    slices.reserve(order.size());
    for (const size_t i : order)
      slices.push_back({jobs[i].parameters, jobs[i].slice_data, jobs[i].target, {}});
    if (!slices.empty()) pool_.run(slices, threads);

    std::vector<DecodeJob> others;
    std::vector<size_t> other_order;
    for (size_t k = 0; k < slices.size(); ++k) {
      DecodeJob& job = jobs[order[k]];
      job.status = fault_status(slices[k]);
      if (slices[k].fault.kind != SliceFaultKind::general || !general_.ok()) continue;
      others.push_back(job);
      other_order.push_back(order[k]);
    }
    if (others.empty()) return;
    (*general_)->decode(others, threads);
    for (size_t k = 0; k < others.size(); ++k)
      jobs[other_order[k]].status = std::move(others[k].status);
  }

 private:
  // Jobs that may be decoded, those with most data first: the last to begin are then short.
  static std::vector<size_t> check_jobs(std::span<DecodeJob> jobs) {
    std::vector<size_t> order;
    for (size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].status = check_job(jobs[i]);
      if (jobs[i].status.ok()) order.push_back(i);
    }
    std::ranges::stable_sort(order, std::ranges::greater{},
                             [&](size_t i) { return jobs[i].slice_data.size(); });
    return order;
  }

  const int threads_;
  JobPool pool_;
  Result<std::unique_ptr<Decoder>> general_;
};

}  // namespace

std::unique_ptr<Decoder> create_software_decoder(int threads) {
  return std::make_unique<SoftwareDecoder>(resolve_threads(threads));
}

}  // namespace kvcodec::hevc
