// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <unistd.h>

#include <string_view>

#include "fuzz/require.h"
#include "store/aead_keys.h"
#include "store/redis_connection.h"
#include "store/redis_manifest.h"
#include "store/s3_xml.h"
#include "store/sealed_store.h"
#include "store/store_uri.h"

// The first byte chooses which reader of the stores gets the rest: URIs and keys that users write,
// and what servers send. Failures must be of the kind that each promises.
using namespace kvcodec;

namespace {

void read_uri(std::string_view text) {
  const auto uri = parse_store_uri(text);
  KVCODEC_REQUIRE(uri.ok() || uri.error().code == ErrorCode::invalid_argument);
  const std::string shown = redact_uri(text);
  for (const char c : shown) KVCODEC_REQUIRE(static_cast<unsigned char>(c) >= 0x20);
  if (!uri.ok()) return;
  // A password that could be told from the rest is not shown, nor what it is followed by.
  const auto decoded = percent_decode(percent_encode(uri->path));
  KVCODEC_REQUIRE(uri->path.find('\0') != std::string::npos || decoded == uri->path);
  if (uri->has_authority && uri->password.size() > 8 &&
      text.find(uri->password) == text.rfind(uri->password)) {
    KVCODEC_REQUIRE(shown.find(uri->password) == std::string::npos);
  }
}

void read_xml(std::string_view text) {
  (void)parse_s3_error(text);
  for (const bool ok : {parse_s3_upload_id(text).ok(), parse_s3_complete(text).ok()}) (void)ok;
  const auto listing = parse_s3_listing(text);
  KVCODEC_REQUIRE(listing.ok() || listing.error().code == ErrorCode::corrupt);
}

void read_resp(std::span<const std::byte> bytes) {
  int fds[2];
  if (bytes.size() > (64 << 10) || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0)
    return;
  const bool sent =
      ::write(fds[0], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  ::close(fds[0]);
  RedisConnection connection(NetStream::adopt(UniqueFd(fds[1]), std::chrono::milliseconds(1000)));
  const Deadline deadline = Deadline::in(std::chrono::milliseconds(1000));
  std::byte place[100];
  for (int i = 0; sent && i < 100; ++i) {
    if (i % 2 == 0) {
      const auto reply = connection.read(deadline);
      if (!reply.ok()) {
        KVCODEC_REQUIRE(reply.error().code == ErrorCode::corrupt ||
                        reply.error().code == ErrorCode::unavailable);
        return;
      }
    } else if (!connection.read_into(place, deadline).ok()) {
      return;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 6) {
    case 0: read_uri(text); break;
    case 1: read_xml(text); break;
    case 2: read_resp(bytes); break;
    case 3: {
      const auto manifest = RedisManifest::parse("a", text, true);
      KVCODEC_REQUIRE(!manifest.ok() || manifest->parts() <= RedisManifest::kMostParts);
      break;
    }
    case 4: {
      const auto header = SealHeader::parse("a", bytes);
      KVCODEC_REQUIRE(!header.ok() || SealHeader::plain_bytes(SealHeader::sealed_bytes(
                                          header->bytes)) == header->bytes);
      break;
    }
    default: {
      const auto keys = parse_keys(text, "fuzz");
      KVCODEC_REQUIRE(keys.ok() || keys.error().code == ErrorCode::invalid_argument);
    }
  }
  return 0;
}
