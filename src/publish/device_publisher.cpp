// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "codec/chunk_decoder.h"
#include "codec/encode_request.h"
#include "hevc/cuda_encoder.h"
#include "kvcodec/device.h"
#include "publish/chunk_publishers.h"

namespace kvcodec::publish {

Status verify_pictures(std::span<const std::byte> object, const format::Header& header,
                       const EncodeOptions& options) {
  DecodeOptions decode;
  decode.expected = &header.id;
  decode.limits = {UINT32_MAX, UINT64_MAX, UINT64_MAX};
  decode.profile = is_calibrated(header.tier) ? options.profile : nullptr;
  decode.threads = options.threads;
  auto read = read_whole(object, decode);
  Status status = read.ok() ? ok_status() : Status(read.error());
  if (read.ok()) {
    const auto decoded = decode_pictures(object, *std::move(read), decode);
    if (!decoded.ok()) status = decoded.error();
  }
  if (status.ok()) return status;
  return make_error(ErrorCode::internal, "the encoded object does not decode: {}",
                    status.error().message);
}

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
    {
      CalibratedPublish encoder(
          *device_, source, range, options,
          start_header(source.geometry->shape, range.count, id, options, EncoderTuning{}), encode_);
      KVCODEC_TRY(const bool fits, encoder.quantise());
      if (fits) return encoder.write();
    }
    return layered(source, range, id, int8_instead(options), EncoderTuning{});
  }

 private:
  Result<std::vector<std::byte>> layered(const KvSource& source, TokenRange range,
                                         const ChunkId& id, const EncodeOptions& options,
                                         const EncoderTuning& tuning) {
    LayeredPublish encoder(*device_, source, range, options, tuning,
                           start_header(source.geometry->shape, range.count, id, options, tuning),
                           encode_);
    return encoder.encode();
  }

  std::unique_ptr<PublishDevice> device_;
  std::unique_ptr<hevc::CudaEncoder> encoder_;
  EncodePictures encode_ = encode_on_host;
};

}  // namespace
}  // namespace kvcodec::publish

namespace kvcodec {

Result<std::unique_ptr<DevicePublisher>> DevicePublisher::create(
    const DevicePublishOptions& options) {
  return publish::Publisher::create(options);
}

}  // namespace kvcodec
