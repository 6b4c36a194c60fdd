// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hevc/decoder.h"
#include "hevc/decoder_variants.h"

namespace kvcodec::hevc {

struct Slice {
  StreamParameters parameters;
  std::vector<uint8_t> data;
};

struct DecodedSlice {
  SliceFault fault;
  std::vector<uint8_t> samples;
  bool is(const std::vector<uint8_t>& expected) const {
    return fault == SliceFault{} && samples == expected;
  }
  std::string what() const {
    return "fault " + std::to_string(static_cast<int>(fault.kind)) + " at block " +
           std::to_string(fault.block);
  }
};

// Gives jobs in order. Thread-safe.
class JobList final : public JobSource {
 public:
  explicit JobList(std::span<SliceJob> jobs) : jobs_(jobs) {}
  SliceJob* take() override {
    const size_t i = next_++;
    return i < jobs_.size() ? &jobs_[i] : nullptr;
  }
  void finish(SliceJob&) override { ++finished_; }
  size_t finished() const { return finished_; }

 private:
  std::span<SliceJob> jobs_;
  std::atomic<size_t> next_ = 0, finished_ = 0;
};

// Returns whether every job was finished, once.
inline bool run_jobs(const DecoderOps& variant, std::span<SliceJob> jobs) {
  JobList list(jobs);
  variant.decode(list);
  return list.finished() == jobs.size();
}

// Decodes all slices in one call. Their data are copied to memory of exactly their size.
inline std::vector<DecodedSlice> decode_slices(const DecoderOps& variant,
                                               std::span<const Slice> slices) {
  std::vector<DecodedSlice> decoded(slices.size());
  std::vector<SliceJob> jobs;
  for (size_t i = 0; i < slices.size(); ++i) {
    const StreamParameters& parameters = slices[i].parameters;
    decoded[i].samples.assign(size_t{parameters.width} * parameters.height, 77);
    jobs.push_back(
        {parameters,
         slices[i].data,
         {decoded[i].samples.data(), parameters.width, parameters.height, parameters.width},
         {SliceFaultKind::goes_on, 12345}});
  }
  if (!run_jobs(variant, jobs)) decoded.clear();
  for (size_t i = 0; i < decoded.size(); ++i) decoded[i].fault = jobs[i].fault;
  return decoded;
}

// Its samples; none where it refuses.
inline std::vector<uint8_t> decode_with_libavcodec(const Slice& slice) {
  static const auto decoder = create_general_decoder(1);
  if (!decoder.ok()) return {};
  const StreamParameters& parameters = slice.parameters;
  std::vector<uint8_t> samples(size_t{parameters.width} * parameters.height, 77);
  DecodeJob job;
  job.parameters = parameters;
  job.slice_data = slice.data;
  job.target = {samples.data(), parameters.width, parameters.height, parameters.width};
  (*decoder)->decode(std::span(&job, 1));
  return job.status.ok() ? samples : std::vector<uint8_t>();
}

}  // namespace kvcodec::hevc
