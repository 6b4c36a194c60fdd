// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "base/hash.h"
#include "fetch/manifest.h"
#include "fuzz/require.h"

// The bytes are a manifest, taken as they are and with a right checksum. What is accepted must be
// what would be written.
using namespace kvcodec;

namespace {

void read(std::span<const std::byte> bytes) {
  const auto manifest = parse_manifest(bytes);
  if (!manifest.ok()) {
    KVCODEC_REQUIRE(manifest.error().code == ErrorCode::corrupt ||
                    manifest.error().code == ErrorCode::unsupported);
    return;
  }
  const std::vector<std::byte> again = serialise_manifest(*manifest);
  KVCODEC_REQUIRE(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  read(bytes);
  if (size < 8) return 0;
  std::vector<std::byte> sealed(bytes.begin(), bytes.end());
  const uint64_t sum = checksum64(std::span(sealed).first(size - 8));
  std::memcpy(sealed.data() + size - 8, &sum, 8);
  read(sealed);
  return 0;
}
