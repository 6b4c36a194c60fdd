// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvcodec/key.h"
#include "kvcodec/result.h"

namespace kvcodec {

// What a manifest object says (docs/format.md, "Manifest"): which renditions of a chunk, and of up
// to kManifestWindow - 1 chunks before it, were there when it was written, and how large they are.
// A hint that saves round trips: objects may come and go, and every object is checked by itself.
struct Manifest {
  Digest ns, key;      // of the last chunk of the window, under which the manifest lies
  uint32_t chunk = 0;  // index of that chunk in its sequence
  uint32_t chunk_tokens = 0;
  std::vector<std::string> renditions;
  // [chunks of the window, oldest first][renditions]: object sizes; 0: not there. Objects of 4 GiB
  // and more are not listed.
  std::vector<uint32_t> bytes;

  size_t window() const { return renditions.empty() ? 0 : bytes.size() / renditions.size(); }
  uint32_t first_chunk() const { return chunk + 1 - static_cast<uint32_t>(window()); }
  uint32_t size_of(uint32_t of_chunk, size_t rendition) const {
    return bytes[(of_chunk - first_chunk()) * renditions.size() + rendition];
  }
};

inline constexpr uint32_t kManifestWindow = 64;
inline constexpr size_t kMaxRenditions = 16;
inline constexpr size_t kMaxManifestBytes = 8 << 10;

std::string manifest_name(const Digest& ns, const Digest& key);
// Requires 1 to kMaxRenditions different names that parse_rendition() takes, a window of 1 to
// kManifestWindow chunks, and chunk_tokens > 0.
std::vector<std::byte> serialise_manifest(const Manifest& manifest);
// Checks every size before it allocates. corrupt (unsupported for a newer version) names the field.
Result<Manifest> parse_manifest(std::span<const std::byte> bytes);
// corrupt where it is another chunk's.
Status check_manifest(const Manifest& manifest, const Digest& ns, const Digest& key, uint32_t chunk,
                      uint32_t chunk_tokens);

}  // namespace kvcodec
