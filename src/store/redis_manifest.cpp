// SPDX-License-Identifier: Apache-2.0
#include "store/redis_manifest.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace kvcodec {
namespace {

constexpr char kMagic[] = "KVCRED01";
constexpr size_t kMagicBytes = 8;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string RedisManifest::serialize() const {
  ByteWriter writer;
  writer.put_bytes(std::as_bytes(std::span(kMagic, kMagicBytes)));
  writer.put_bytes(version);
  writer.put(bytes);
  writer.put(part_bytes);
  writer.put(uint32_t{0});
  writer.put(put_ms);
  return std::string(as_text(writer.bytes()));
}

Result<RedisManifest> RedisManifest::parse(std::string_view name, std::string_view value,
                                           bool whole) {
  ByteReader reader(std::as_bytes(std::span(value)));
  RedisManifest manifest;
  const auto magic = reader.get_bytes(kMagicBytes);
  const auto version = reader.get_bytes(manifest.version.size());
  manifest.bytes = reader.get<uint64_t>();
  manifest.part_bytes = reader.get<uint32_t>();
  const auto reserved = reader.get<uint32_t>();
  manifest.put_ms = reader.get<uint64_t>();
  if (!reader.ok() || as_text(magic) != kMagic || reserved != 0 || manifest.bytes > INT64_MAX ||
      (manifest.part_bytes == 0 && manifest.bytes > kInlineBytes) ||
      (manifest.part_bytes != 0 &&
       (manifest.bytes == 0 || manifest.part_bytes < kLeastPart ||
        manifest.part_bytes > kMostPart || manifest.parts() > kMostParts)) ||
      (whole && value.size() - kBytes != (manifest.part_bytes == 0 ? manifest.bytes : 0))) {
    return make_error(ErrorCode::corrupt,
                      "object '{}': what the server has under its key, {} bytes, is not a manifest",
                      name, value.size());
  }
  std::copy(version.begin(), version.end(), manifest.version.begin());
  return manifest;
}

}  // namespace kvcodec
