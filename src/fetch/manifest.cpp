// SPDX-License-Identifier: Apache-2.0
#include "fetch/manifest.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "kvcodec/profile.h"

namespace kvcodec {
namespace {

constexpr char kMagic[8] = {'K', 'V', 'C', 'M', 'A', 'N', 'I', '\n'};
constexpr uint16_t kVersion = 1;
constexpr size_t kMaxNameBytes = 32;

template <typename Expected, typename Found>
Error bad_field(const char* field, size_t offset, const Expected& expected, const Found& found) {
  return make_error(ErrorCode::corrupt, "manifest field {} at offset {}: expected {}, found {}",
                    field, offset, expected, found);
}

Status check_envelope(std::span<const std::byte> bytes) {
  constexpr size_t kLeast = sizeof kMagic + sizeof kVersion + sizeof(uint64_t);
  if (bytes.size() < kLeast || bytes.size() > kMaxManifestBytes)
    return make_error(ErrorCode::corrupt, "manifest: expected {} to {} bytes, found {}", kLeast,
                      kMaxManifestBytes, bytes.size());
  if (std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    return make_error(ErrorCode::corrupt, "manifest: the magic at offset 0 is not a manifest's");
  const auto version = load_le<uint16_t>(bytes.data() + sizeof kMagic);
  if (version > kVersion)
    return make_error(ErrorCode::unsupported, "manifest: version {}, this build reads up to {}",
                      version, kVersion);
  if (version == 0) return bad_field("version", sizeof kMagic, 1, 0);
  const size_t end = bytes.size() - sizeof(uint64_t);
  const auto expected = load_le<uint64_t>(bytes.data() + end);
  const uint64_t found = checksum64(bytes.first(end));
  if (expected == found) return ok_status();
  return make_error(ErrorCode::corrupt, "manifest: checksum: expected {:016x}, found {:016x}",
                    expected, found);
}

Digest get_digest(ByteReader& reader) {
  Digest digest;
  const auto bytes = reader.get_bytes(digest.bytes.size());
  std::copy(bytes.begin(), bytes.end(), digest.bytes.begin());
  return digest;
}

Status read_names(ByteReader& reader, size_t count, std::vector<std::string>& names) {
  for (size_t i = 0; i < count; ++i) {
    const size_t at = reader.offset();
    const auto length = reader.get<uint8_t>();
    if (length > kMaxNameBytes) return bad_field("rendition length", at, "1 to 32", length);
    const auto text = reader.get_bytes(length);
    std::string name(reinterpret_cast<const char*>(text.data()), text.size());
    if (!reader.ok()) return bad_field("rendition", at, "a name", "the end");
    if (const auto parsed = parse_rendition(name); !parsed.ok())
      return make_error(ErrorCode::corrupt, "manifest field rendition at offset {}: {}", at,
                        parsed.error().message);
    if (std::find(names.begin(), names.end(), name) != names.end())
      return bad_field("rendition", at, "a new name", name);
    names.push_back(std::move(name));
  }
  return ok_status();
}

}  // namespace

std::string manifest_name(const Digest& ns, const Digest& key) {
  return object_name(ns, key, "manifest");
}

std::vector<std::byte> serialise_manifest(const Manifest& manifest) {
  ByteWriter writer;
  writer.put_bytes(std::as_bytes(std::span(kMagic)));
  writer.put(kVersion);
  writer.put(static_cast<uint16_t>(manifest.renditions.size()));
  writer.put(static_cast<uint32_t>(manifest.window()));
  writer.put(manifest.chunk);
  writer.put(manifest.chunk_tokens);
  writer.put_bytes(manifest.ns.bytes);
  writer.put_bytes(manifest.key.bytes);
  for (const std::string& name : manifest.renditions) {
    writer.put(static_cast<uint8_t>(name.size()));
    writer.put_bytes(std::as_bytes(std::span(name)));
  }
  for (uint32_t bytes : manifest.bytes) writer.put(bytes);
  writer.put(checksum64(writer.bytes()));
  return std::move(writer.bytes());
}

Result<Manifest> parse_manifest(std::span<const std::byte> bytes) {
  KVCODEC_CHECK(check_envelope(bytes));
  ByteReader reader(bytes.first(bytes.size() - sizeof(uint64_t)));
  reader.get_bytes(sizeof kMagic + sizeof kVersion);
  const auto renditions = reader.get<uint16_t>();
  if (renditions == 0 || renditions > kMaxRenditions)
    return bad_field("renditions", 10, "1 to 16", renditions);
  const auto window = reader.get<uint32_t>();
  if (window == 0 || window > kManifestWindow) return bad_field("window", 12, "1 to 64", window);
  Manifest manifest;
  manifest.chunk = reader.get<uint32_t>();
  if (manifest.chunk < window - 1)
    return bad_field("chunk", 16, fmt::format("at least {}", window - 1), manifest.chunk);
  manifest.chunk_tokens = reader.get<uint32_t>();
  if (manifest.chunk_tokens == 0) return bad_field("chunk_tokens", 20, "at least 1", 0);
  manifest.ns = get_digest(reader);
  manifest.key = get_digest(reader);
  KVCODEC_CHECK(read_names(reader, renditions, manifest.renditions));
  const size_t sizes = size_t{window} * renditions;
  if (reader.remaining() != sizes * sizeof(uint32_t))
    return bad_field("sizes", reader.offset(), fmt::format("{} bytes", sizes * sizeof(uint32_t)),
                     reader.remaining());
  for (size_t i = 0; i < sizes; ++i) manifest.bytes.push_back(reader.get<uint32_t>());
  return manifest;
}

Status check_manifest(const Manifest& manifest, const Digest& ns, const Digest& key, uint32_t chunk,
                      uint32_t chunk_tokens) {
  const auto wrong = [](const char* field, const auto& expected, const auto& found) {
    return make_error(ErrorCode::corrupt, "not the expected manifest: {}: expected {}, found {}",
                      field, expected, found);
  };
  if (manifest.ns != ns) return wrong("namespace", to_hex(ns), to_hex(manifest.ns));
  if (manifest.key != key) return wrong("key", to_hex(key), to_hex(manifest.key));
  if (manifest.chunk != chunk) return wrong("chunk", chunk, manifest.chunk);
  if (manifest.chunk_tokens != chunk_tokens)
    return wrong("chunk_tokens", chunk_tokens, manifest.chunk_tokens);
  return ok_status();
}

}  // namespace kvcodec
