// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/hash.h"
#include "format/header_fields.h"
#include "fuzz/require.h"
#include "hevc/decoder.h"
#include "kvcodec/profile.h"

// The bytes are an object. All its checksums are made right, that of decoded samples included, so
// that every later stage meets hostile bytes. A failure must be corrupt and leave the target alone;
// whatever is restored must be the same each time. Where no picture is coded, decode_chunk and
// verify_chunk must agree too (libavcodec may read a malformed slice differently each time, and a
// checksum then refuses it).
using namespace kvcodec;

namespace {

const Limits kLimits = {512, uint64_t{8} << 20, uint64_t{1} << 20};

// Where the index's entry of picture `i` is.
size_t entry_of(const format::Header& header, size_t header_bytes, size_t i) {
  return header_bytes - format::kChecksumBytes -
         (header.pictures.size() - i) * format::kPictureBytes;
}

void fix_header_checksum(std::vector<std::byte>& object, size_t header_bytes) {
  const size_t at = header_bytes - format::kChecksumBytes;
  const uint64_t checksum = checksum64(std::span(object).first(at));
  std::memcpy(&object[at], &checksum, sizeof checksum);
}

// Of the picture's samples; of anything where they do not decode.
uint64_t content_checksum(const format::Header& header, const format::Picture& picture,
                          std::span<const std::byte> payload) {
  static const auto decoder = hevc::create_software_decoder(1);
  KVCODEC_REQUIRE(decoder.ok());
  std::vector<uint8_t> samples(size_t{picture.width} * picture.height);
  hevc::DecodeJob job;
  job.parameters = {picture.width, picture.height, picture.coding == format::Coding::hevc_rice};
  job.slice_data = {reinterpret_cast<const uint8_t*>(payload.data()), payload.size()};
  job.target = {samples.data(), picture.width, picture.height, picture.width};
  (*decoder)->decode(std::span(&job, 1));
  if (!job.status.ok()) return 0;
  std::vector<uint8_t> content;
  for (uint32_t row = 0; row < picture.rows; ++row) {
    const uint8_t* from = &samples[size_t{row} * picture.width];
    content.insert(content.end(), from, from + header.tokens);
  }
  return checksum64(std::as_bytes(std::span(content)));
}

void fix_payload_checksums(std::vector<std::byte>& object, const format::Header& header,
                           size_t header_bytes) {
  for (size_t i = 0; i < header.pictures.size(); ++i) {
    const format::Picture& picture = header.pictures[i];
    const auto payload = std::span(object).subspan(picture.offset, picture.bytes);
    const uint64_t stored = checksum64(payload);
    const uint64_t content =
        picture.coding == format::Coding::raw ? stored : content_checksum(header, picture, payload);
    const size_t entry = entry_of(header, header_bytes, i);
    std::memcpy(&object[entry + 36], &stored, sizeof stored);
    std::memcpy(&object[entry + 44], &content, sizeof content);
  }
  fix_header_checksum(object, header_bytes);
}

// Profiles of golden objects.
const std::vector<Profile>& profiles() {
  static const std::vector<Profile> all = [] {
    std::vector<Profile> loaded;
    for (const char* name : {"smollm2_cut", "neox_partial", "no_values"}) {
      auto profile =
          Profile::load(std::string(KVCODEC_GOLDEN_FOLDER "/profiles/") + name + ".safetensors");
      KVCODEC_REQUIRE(profile.ok());
      loaded.push_back(*std::move(profile));
    }
    return loaded;
  }();
  return all;
}

// The object made one of the first profile with its shape, so that decoding goes on. Nothing where
// it needs none, or there is none.
const Profile* adopt_profile(std::vector<std::byte>& object, const format::Header& header,
                             size_t header_bytes) {
  if (!header.has_basis()) return nullptr;
  for (const Profile& profile : profiles()) {
    if (!profile.check_shape(header.shape).ok()) continue;
    std::memcpy(&object[format::kProfileAt], profile.digest().bytes.data(), 32);
    fix_header_checksum(object, header_bytes);
    return &profile;
  }
  return nullptr;
}

DecodeOptions decode_options(const Profile* profile) {
  DecodeOptions options;
  options.profile = profile;
  options.limits = kLimits;
  options.threads = 1;
  return options;
}

// The elements restored, or nothing.
std::vector<std::byte> decode(std::span<const std::byte> object, const KvGeometry& geometry,
                              const Profile* profile, std::byte before) {
  std::vector<std::byte> memory(geometry.contiguous_bytes(), before);
  const Status decoded = decode_chunk(object, {memory, &geometry}, 0, decode_options(profile));
  if (decoded.ok()) return memory;
  KVCODEC_REQUIRE(decoded.error().code == ErrorCode::corrupt);
  KVCODEC_REQUIRE(std::ranges::all_of(memory, [&](std::byte b) { return b == before; }));
  return {};
}

void check_decoding(std::span<const std::byte> object, const format::Header& header,
                    const Profile* profile) {
  const KvGeometry geometry = KvGeometry::contiguous(header.shape, header.tokens);
  const std::vector<std::byte> first = decode(object, geometry, profile, std::byte{0xA5});
  const std::vector<std::byte> second = decode(object, geometry, profile, std::byte{0x5A});
  const bool verified = verify_chunk(object, decode_options(profile)).ok();
  KVCODEC_REQUIRE(first.empty() || second.empty() || first == second);
  const bool all_raw = std::ranges::all_of(header.pictures, [](const format::Picture& picture) {
    return picture.coding == format::Coding::raw;
  });
  KVCODEC_REQUIRE(!all_raw || (first.empty() == second.empty() && verified == !first.empty()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::byte> object(size);
  if (size > 0) std::memcpy(object.data(), data, size);
  const Result<uint32_t> bytes =
      format::header_bytes(std::span(object).first(std::min(size, format::kPrefixBytes)));
  if (!bytes.ok() || *bytes > size) return 0;
  fix_header_checksum(object, *bytes);
  Result<format::Header> header = format::read_header(object, kLimits);
  if (!header.ok()) return 0;
  // One token of many channels has pictures far larger than the limit; decode_chunk refuses them.
  uint64_t samples = 0;
  for (const format::Picture& picture : header->pictures)
    samples += uint64_t{picture.width} * picture.height;
  if (header->object_bytes == size && samples <= kLimits.max_decoded_bytes)
    fix_payload_checksums(object, *header, *bytes);
  const Profile* profile = adopt_profile(object, *header, *bytes);
  if (header->has_basis() && profile == nullptr) return 0;
  check_decoding(object, *header, profile);
  return 0;
}
