// SPDX-License-Identifier: Apache-2.0
#include "hevc/encoder.h"

#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "hevc/encoder_variants.h"
#include "hevc/job_queue.h"
#include "hevc/lane_scratch.h"

namespace kvcodec::hevc {
namespace {

// The jobs, largest first, so that no large one is left when all others are done. The memory is
// the thread's, for the next call.
std::span<EncodeJob* const> by_size(std::span<EncodeJob> jobs) {
  thread_local std::vector<EncodeJob*> order;
  order.clear();
  for (EncodeJob& job : jobs) order.push_back(&job);
  const auto samples = [](const EncodeJob* job) {
    return uint64_t{job->picture.width} * job->picture.height;
  };
  std::sort(order.begin(), order.end(), [&](const EncodeJob* a, const EncodeJob* b) {
    return samples(a) != samples(b) ? samples(a) > samples(b) : a < b;
  });
  return order;
}

}  // namespace

std::span<const EncoderOps> encoder_variants() {
  static const std::vector<EncoderOps> variants = [] {
    std::vector<EncoderOps> all = {kReferenceEncoder, kScalarEncoder};
    if (const EncoderOps* bmi2 = bmi2_encoder()) all.push_back(*bmi2);
    all.insert(all.end(), lane_encoders().begin(), lane_encoders().end());
    return all;
  }();
  return variants;
}

const EncoderOps& best_encoder(size_t pictures) {
  const std::span<const EncoderOps> variants = encoder_variants();
  size_t best = variants.size() - 1;
  while (std::max<size_t>(pictures, 1) < variants[best].min_pictures) --best;
  return variants[best];
}

void encode_pictures(std::span<EncodeJob> jobs, int threads) {
  const size_t workers = std::min(jobs.size(), static_cast<size_t>(resolve_threads(threads)));
  if (workers == 0) return;
  const size_t at_once = (jobs.size() + workers - 1) / workers;
  const EncoderOps& encoder = best_encoder(at_once);
  JobQueue queue(by_size(jobs));
  const auto work = [&] {
    const ScratchLease scratch;
    encoder.work(queue, at_once, *scratch);
  };
  if (workers == 1) {
    work();
  } else {
    parallel_for(workers, static_cast<int>(workers), [&](size_t, int) { work(); });
  }
}

void EncoderOps::encode(std::span<EncodeJob> jobs) const {
  JobQueue queue(by_size(jobs));
  const ScratchLease scratch;
  work(queue, lanes, *scratch);
}

void EncoderOps::encode(const StreamParameters& parameters, std::span<const PictureView> pictures,
                        std::span<std::vector<uint8_t>> slice_data) const {
  std::vector<EncodeJob> jobs(pictures.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    jobs[i] = {pictures[i], parameters.persistent_rice, &slice_data[i]};
  }
  encode(jobs);
}

}  // namespace kvcodec::hevc
