// SPDX-License-Identifier: Apache-2.0
#include "codec/picture_coder.h"

#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "hevc/encoder.h"
#include "hevc/persistent_rice.h"

namespace kvcodec {
namespace {

// Above this entropy HEVC's 4 to 6 % on top of it leave nothing to gain over 8 raw bits.
constexpr double kRawFromEntropy = 7.7;

// Order 0, bits a sample.
double entropy_of(std::span<const uint8_t> samples) {
  std::array<uint32_t, 256> counts{};
  for (uint8_t sample : samples) ++counts[sample];
  double entropy = 0;
  for (uint32_t count : counts) {
    const double share = count / static_cast<double>(samples.size());
    if (share > 0) entropy -= share * std::log2(share);
  }
  return entropy;
}

// Rows of `stride` samples to rows of `tokens`.
void drop_padding(PictureContent& content, uint32_t rows, uint32_t tokens) {
  if (content.stride != tokens) {
    for (size_t row = 1; row < rows; ++row)
      std::memmove(content.samples.data() + row * tokens,
                   content.samples.data() + row * content.stride, tokens);
    content.stride = tokens;
  }
  content.samples.resize(size_t{rows} * tokens);
}

void encode_samples(uint32_t tokens, format::Picture& picture, PictureContent& content) {
  const size_t size = size_t{picture.rows} * tokens;
  std::vector<uint8_t> padded = content.samples;
  drop_padding(content, picture.rows, tokens);
  picture.content_checksum = checksum64(std::as_bytes(std::span(content.samples)));

  if (entropy_of(content.samples) < kRawFromEntropy) {
    const hevc::PictureView view{padded.data(), picture.width, picture.height, picture.width};
    const bool rice = hevc::persistent_rice_pays(view);
    std::vector<uint8_t> slice;
    hevc::best_encoder().encode({picture.width, picture.height, rice}, std::span(&view, 1),
                                std::span(&slice, 1));
    if (slice.size() < size) {
      picture.coding = rice ? format::Coding::hevc_rice : format::Coding::hevc;
      const auto bytes = std::as_bytes(std::span(slice));
      content.stored.assign(bytes.begin(), bytes.end());
      return;
    }
  }
  picture.coding = format::Coding::raw;
  const auto bytes = std::as_bytes(std::span(content.samples));
  content.stored.assign(bytes.begin(), bytes.end());
}

// The process's decoder, for all cores; callers say how many threads they may use.
hevc::Decoder& software_decoder() {
  static const std::unique_ptr<hevc::Decoder> decoder = hevc::create_software_decoder(0);
  return *decoder;
}

std::string picture_place(size_t index, const format::Picture& picture) {
  return fmt::format("picture {} ({} rows from {}) at offset {}", index, kv_kind_name(picture.kind),
                     picture.first_row, picture.offset);
}

// Decodes or copies one picture whose payload is whole, and checks its content.
Status load_samples(const format::Header& header, size_t index, PictureContent& content) {
  const format::Picture& picture = header.pictures[index];
  const auto* bytes = reinterpret_cast<const uint8_t*>(content.payload.data());
  if (picture.coding == format::Coding::raw) {
    content.stride = header.tokens;
    content.samples.assign(bytes, bytes + content.payload.size());
    return ok_status();
  }
  content.stride = picture.width;
  content.samples.resize(size_t{picture.width} * picture.height);
  hevc::DecodeJob job;
  job.parameters = {picture.width, picture.height, picture.coding == format::Coding::hevc_rice};
  job.slice_data = {bytes, content.payload.size()};
  job.target = {content.samples.data(), picture.width, picture.height, picture.width};
  software_decoder().decode(std::span(&job, 1), 1);
  if (!job.status.ok()) {
    return make_error(job.status.error().code, "{}: {}", picture_place(index, picture),
                      job.status.error().message);
  }
  drop_padding(content, picture.rows, header.tokens);
  const uint64_t checksum = checksum64(std::as_bytes(std::span(content.samples)));
  if (checksum != picture.content_checksum) {
    return make_error(ErrorCode::corrupt,
                      "{}: checksum of the decoded samples: expected {:016x}, found {:016x}",
                      picture_place(index, picture), picture.content_checksum, checksum);
  }
  return ok_status();
}

Status check_payload(const format::Header& header, size_t index, const PictureContent& content) {
  const format::Picture& picture = header.pictures[index];
  const uint64_t checksum = checksum64(content.payload);
  if (checksum == picture.payload_checksum) return ok_status();
  return make_error(ErrorCode::corrupt,
                    "{}: checksum of the stored bytes: expected {:016x}, found {:016x}",
                    picture_place(index, picture), picture.payload_checksum, checksum);
}

// Calls body(i) for every i < n in parallel; the error of the lowest i, whatever the timing.
template <typename Body>
Status parallel_check(size_t n, int threads, const Body& body) {
  std::vector<Status> statuses(n, ok_status());
  parallel_for(n, threads, [&](size_t i, int) { statuses[i] = body(i); });
  for (Status& status : statuses) KVCODEC_CHECK(std::move(status));
  return ok_status();
}

}  // namespace

void store_picture(uint32_t tokens, format::Picture& picture, PictureContent& content) {
  if (picture.plane == format::Plane::symbols) encode_samples(tokens, picture, content);
  content.samples = {};
  picture.bytes = content.stored.size();
  picture.payload_checksum = checksum64(content.stored);
  if (picture.coding == format::Coding::raw) picture.content_checksum = picture.payload_checksum;
}

Status load_pictures(const format::Header& header, std::span<const std::byte> object, int threads,
                     std::span<PictureContent> contents) {
  KVCODEC_CHECK(parallel_check(contents.size(), threads, [&](size_t i) {
    contents[i].payload = object.subspan(header.pictures[i].offset, header.pictures[i].bytes);
    return check_payload(header, i, contents[i]);
  }));
  return parallel_check(contents.size(), threads, [&](size_t i) {
    const bool samples = header.pictures[i].plane == format::Plane::symbols;
    return samples ? load_samples(header, i, contents[i]) : ok_status();
  });
}

}  // namespace kvcodec
