// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "base/bytes.h"
#include "base/hash.h"
#include "format/header_fields.h"
#include "fuzz/require.h"

// The bytes are the beginning of an object. It is read as it is, and with its checksum made right,
// so that the checks behind the checksum are reached. A header that is accepted must be the one
// that write_header makes of what was read: there is one encoding of a content.
using namespace kvcodec;

namespace {

void check_reading(std::span<const std::byte> object) {
  const Result<format::Header> read = format::read_header(object, {});
  if (!read.ok()) {
    const ErrorCode code = read.error().code;
    KVCODEC_REQUIRE(code == ErrorCode::corrupt || code == ErrorCode::unsupported);
    return;
  }
  format::Header header = *read;
  const std::vector<std::byte> written = format::write_header(header);
  KVCODEC_REQUIRE(written.size() <= object.size());
  KVCODEC_REQUIRE(std::memcmp(written.data(), object.data(), written.size()) == 0);
  KVCODEC_REQUIRE(header.object_bytes == read->object_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::byte> object(size);
  if (size > 0) std::memcpy(object.data(), data, size);
  check_reading(object);
  const Result<uint32_t> bytes =
      format::header_bytes(std::span(object).first(std::min(size, format::kPrefixBytes)));
  if (!bytes.ok() || *bytes > size) return 0;
  const size_t at = *bytes - format::kChecksumBytes;
  const uint64_t checksum = checksum64(std::span(object).first(at));
  std::memcpy(&object[at], &checksum, sizeof checksum);
  check_reading(object);
  return 0;
}
