// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "codec/encode_request.h"
#include "hevc/cuda_encoder.h"
#include "kvcodec/device.h"
#include "publish/chunk_publishers.h"

namespace kvcodec::publish {

std::vector<format::Escape> sorted_escapes(std::span<const EscapeEntry> entries, KvKind kind,
                                           uint32_t first_row) {
  std::vector<format::Escape> escapes;
  escapes.reserve(entries.size());
  for (const EscapeEntry& entry : entries)
    escapes.push_back({kind, first_row + entry.row, entry.token, entry.code});
  std::sort(escapes.begin(), escapes.end(), [](const format::Escape& a, const format::Escape& b) {
    return std::tie(a.row, a.token) < std::tie(b.row, b.token);
  });
  return escapes;
}

Status EscapeLists::reserve(uint32_t room) {
  KVCODEC_TRY(entries_, device_.device_buffers().take(
                            device_.driver(), groups_ * uint64_t{room} * sizeof(EscapeEntry)));
  room_ = room;
  return ok_status();
}

EscapeEntry* EscapeLists::of(size_t group) const {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are integers to the host.
  return reinterpret_cast<EscapeEntry*>(entries_->data()) + group * uint64_t{room_};
}

Result<std::vector<EscapeEntry>> EscapeLists::fetch(size_t group, uint32_t count,
                                                    CUstream stream) const {
  std::vector<EscapeEntry> entries(count);
  if (count == 0) return entries;
  const CudaFunctions& cuda = device_.driver().cuda();
  KVCODEC_CHECK(device_.driver().check(cuda.cuStreamSynchronize(stream), "cuStreamSynchronize"));
  KVCODEC_CHECK(device_.driver().check(
      cuda.cuMemcpyDtoH(entries.data(),
                        entries_->data() + group * uint64_t{room_} * sizeof(EscapeEntry),
                        count * sizeof(EscapeEntry)),
      "cuMemcpyDtoH"));
  return entries;
}

namespace {

class Publisher final : public DevicePublisher {
 public:
  static Result<std::unique_ptr<DevicePublisher>> create(const DevicePublishOptions& options) {
    auto publisher = std::make_unique<Publisher>();
    KVCODEC_TRY(publisher->device_,
                PublishDevice::create(options.device, options.max_device_bytes));
    publisher->calibrated_ = options.unproven_calibrated;
    if (options.encode_on_device) {
      KVCODEC_TRY(publisher->encoder_,
                  hevc::CudaEncoder::create(
                      {.device = options.device, .max_device_bytes = options.max_device_bytes}));
      publisher->encode_ = [encoder = publisher->encoder_.get()](std::span<hevc::EncodeJob> jobs,
                                                                 int) {
        return encoder->encode(jobs);
      };
    }
    return std::unique_ptr<DevicePublisher>(std::move(publisher));
  }

  const std::string& gpu() const override { return device_->driver().gpu(); }

  Result<std::vector<std::byte>> encode(const DeviceSource& memory, TokenRange range,
                                        const ChunkId& id, const EncodeOptions& options) override {
    // Only its size is looked at on the host.
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    const KvSource source = {{reinterpret_cast<const std::byte*>(memory.memory), memory.bytes},
                             memory.geometry};
    KVCODEC_CHECK(check_request(source, range, id, options));
    const CudaScope scope(device_->driver());
    if (!is_calibrated(options.tier)) return layered(source, range, id, options, EncoderTuning{});
    if (options.profile->is_identity())
      return layered(source, range, id, options, identity_tuning(options, EncoderTuning{}));
    if (!calibrated_) {
      return make_error(ErrorCode::unsupported,
                        "publishing from a GPU: the kernels of the calibrated tiers are not proven "
                        "(DevicePublishOptions::unproven_calibrated); expected tier exact or int8, "
                        "found {}",
                        tier_name(options.tier));
    }
    {
      auto encoder = std::make_unique<CalibratedPublish>(
          *device_, source, range, options,
          start_header(source.geometry->shape, range.count, id, options, EncoderTuning{}));
      KVCODEC_TRY(const bool fits, encoder->quantise());
      if (fits) {
        encoder->fill_pictures();
        return finish(std::move(encoder), options);
      }
    }
    return layered(source, range, id, int8_instead(options), EncoderTuning{});
  }

 private:
  Result<std::vector<std::byte>> finish(std::unique_ptr<PendingChunk> chunk,
                                        const EncodeOptions& options) const {
    EncodedChunks encoded = finish_chunks(std::span(&chunk, 1), options, encode_);
    KVCODEC_CHECK(std::move(encoded.status));
    return std::move(encoded.objects.front());
  }

  Result<std::vector<std::byte>> layered(const KvSource& source, TokenRange range,
                                         const ChunkId& id, const EncodeOptions& options,
                                         const EncoderTuning& tuning) {
    auto encoder = std::make_unique<LayeredPublish>(
        *device_, source, range, options.threads, tuning,
        start_header(source.geometry->shape, range.count, id, options, tuning));
    KVCODEC_CHECK(encoder->quantise());
    return finish(std::move(encoder), options);
  }

  std::unique_ptr<PublishDevice> device_;
  std::unique_ptr<hevc::CudaEncoder> encoder_;
  EncodePictures encode_ = encode_on_host;
  bool calibrated_ = false;
};

}  // namespace
}  // namespace kvcodec::publish

namespace kvcodec {

Result<std::unique_ptr<DevicePublisher>> DevicePublisher::create(
    const DevicePublishOptions& options) {
  return publish::Publisher::create(options);
}

}  // namespace kvcodec
