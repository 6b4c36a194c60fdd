// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/kv.h"
#include "kvcodec/result.h"

namespace kvcodec {

// A SHA-256.
struct Digest {
  std::array<std::byte, 32> bytes{};
  bool operator==(const Digest&) const = default;
  auto operator<=>(const Digest&) const = default;
};
std::string to_hex(const Digest& digest);  // 64 lower-case digits
Result<Digest> digest_from_hex(std::string_view hex);
Digest sha256(std::span<const std::byte> bytes);
// Of a whole file, streamed. not_found or io.
Result<Digest> sha256_file(const std::string& path);

// Everything that makes two caches incompatible. Two publishers whose fields are equal share
// objects; any difference separates them.
struct NamespaceFields {
  std::string model;  // a name for people; part of the hash
  Digest weights;     // of the weights' bytes
  KvShape shape;
  Rope rope;
  uint32_t rank = 0, ranks = 1;  // tensor-parallel rank and their number
  std::string salt;              // tenant
  Digest profile;                // zeros: none
};
// SHA-256 over the serialisation in docs/format.md, "Namespace"; covers the format version.
Digest namespace_digest(const NamespaceFields& fields);

// Keys of the whole chunks of a token sequence: key[i] = SHA-256(key[i-1], token ids of chunk i),
// key[-1] = the namespace. A remainder of fewer than chunk_tokens has no key.
// Requires chunk_tokens > 0.
std::vector<Digest> chunk_keys(const Digest& ns, std::span<const int32_t> tokens,
                               uint32_t chunk_tokens);
// The key of one chunk of any length after `parent` (the namespace before the first).
Digest chunk_key(const Digest& parent, std::span<const int32_t> tokens);

// Name of an object in a store: "<namespace>/<key>/<rendition>". Rendition: [a-z0-9-]{1,32}.
std::string object_name(const Digest& ns, const Digest& key, std::string_view rendition);

}  // namespace kvcodec
