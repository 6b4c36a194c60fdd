// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"

namespace kvcodec {

inline constexpr size_t kSealBytes = 32;

// Object content that tells whether it is whole: checksum of the rest, number of bytes, hash of
// the object's name, `version`, then filling that depends on all of them.
inline std::vector<std::byte> make_sealed(std::string_view name, uint64_t version, size_t size) {
  size = std::max(size, kSealBytes);
  const uint64_t name_hash = checksum64(std::as_bytes(std::span(name)));
  ByteWriter writer;
  writer.put(uint64_t{0});
  writer.put(static_cast<uint64_t>(size));
  writer.put(name_hash);
  writer.put(version);
  auto& bytes = writer.bytes();
  bytes.resize(size);
  uint64_t state = name_hash ^ (version * 0x9e3779b97f4a7c15u);
  for (size_t i = kSealBytes; i < size; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    bytes[i] = static_cast<std::byte>(state >> 56);
  }
  writer.patch(0, checksum64(std::span(bytes).subspan(8)));
  return bytes;
}

// The version, where the object is whole and of this name.
inline std::optional<uint64_t> sealed_version(std::string_view name,
                                              std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto sum = reader.get<uint64_t>(), size = reader.get<uint64_t>();
  const auto name_hash = reader.get<uint64_t>(), version = reader.get<uint64_t>();
  if (!reader.ok() || size != bytes.size() || sum != checksum64(bytes.subspan(8)) ||
      name_hash != checksum64(std::as_bytes(std::span(name)))) {
    return std::nullopt;
  }
  return version;
}

inline std::vector<std::byte> to_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace kvcodec
