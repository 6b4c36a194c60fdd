// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "base/error.h"
#include "codec/chunk_decoder.h"
#include "kvcodec/restorer.h"

namespace kvcodec {
namespace {

// A calibrated rendition has chunks of finer tiers where one was far off the profile.
const Tier* exactly(const FetchedChunk& chunk) {
  return is_calibrated(chunk.tier) ? nullptr : &chunk.tier;
}
const Tier* at_lowest(const FetchedChunk& chunk) {
  return is_calibrated(chunk.tier) ? &chunk.tier : nullptr;
}

class HostRestorer final : public ChunkRestorer {
 public:
  explicit HostRestorer(const KvTarget& target) : target_(target) {}
  const KvGeometry& geometry() const override { return *target_.geometry; }
  Outcome restore(std::span<const FetchedChunk> chunks, const DecodeOptions& options,
                  const std::function<bool()>& go_on) override {
    std::vector<ChunkToRestore> parts;
    for (const FetchedChunk& chunk : chunks)
      parts.push_back(
          {chunk.object, chunk.first_token, &chunk.id, exactly(chunk), at_lowest(chunk)});
    RestoredChunks restored = decode_chunks(parts, target_, options, go_on);
    return {restored.chunks, std::move(restored.status)};
  }

 private:
  const KvTarget target_;
};

class GpuRestorer final : public ChunkRestorer {
 public:
  GpuRestorer(DeviceRestorer& restorer, const DeviceTarget& target)
      : restorer_(restorer), target_(target) {}
  const KvGeometry& geometry() const override { return *target_.geometry; }
  Outcome restore(std::span<const FetchedChunk> chunks, const DecodeOptions& options,
                  const std::function<bool()>& go_on) override {
    std::vector<DeviceRestoreJob> jobs;
    for (const FetchedChunk& chunk : chunks) {
      DeviceRestoreJob& job = jobs.emplace_back();
      job.object = chunk.object;
      job.target = target_;
      job.first_token = chunk.first_token;
      job.options = options;
      job.options.expected = &chunk.id;
      job.options.expected_tier = exactly(chunk);
      job.options.lowest_tier = at_lowest(chunk);
    }
    restorer_.restore(jobs);
    Outcome outcome;
    for (DeviceRestoreJob& job : jobs) {
      if (!job.status.ok()) {
        outcome.status = std::move(job.status);
        break;
      }
      ++outcome.chunks;
      if (!go_on()) break;
    }
    return outcome;
  }

 private:
  DeviceRestorer& restorer_;
  const DeviceTarget target_;
};

Status check_target(const KvGeometry* geometry, uint64_t bytes) {
  if (geometry == nullptr)
    return make_error(ErrorCode::invalid_argument, "fetch: the target has no geometry");
  return geometry->validate(bytes);
}

}  // namespace

Result<std::unique_ptr<ChunkRestorer>> host_restorer(const KvTarget& target) {
  KVCODEC_CHECK(check_target(target.geometry, target.memory.size()));
  return std::unique_ptr<ChunkRestorer>(std::make_unique<HostRestorer>(target));
}

Result<std::unique_ptr<ChunkRestorer>> device_restorer(DeviceRestorer& restorer,
                                                       const DeviceTarget& target) {
  KVCODEC_CHECK(check_target(target.geometry, target.bytes));
  return std::unique_ptr<ChunkRestorer>(std::make_unique<GpuRestorer>(restorer, target));
}

}  // namespace kvcodec
