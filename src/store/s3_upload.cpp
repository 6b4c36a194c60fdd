// SPDX-License-Identifier: Apache-2.0
// How an S3Store puts objects: small ones in one request, large ones in parts.
#include <algorithm>

#include "base/error.h"
#include "kvcodec/key.h"
#include "store/s3_store.h"
#include "store/store_name.h"

namespace kvcodec {
namespace {

constexpr uint64_t kMaxParts = 10000;
constexpr std::chrono::milliseconds kAbortTime{5000};

}  // namespace

Status S3Store::put(std::string_view name, std::span<const std::byte> bytes) {
  KVCODEC_CHECK(validate_name(name));
  const Deadline until = deadline();
  return bytes.size() > config_.multipart_bytes ? put_in_parts(name, bytes, until)
                                                : put_whole(name, bytes, until);
}

Status S3Store::put_whole(std::string_view name, std::span<const std::byte> bytes,
                          Deadline deadline) {
  const Digest hash = sha256(bytes);
  const std::string expected = base64(hash);
  const Part part{{}, bytes, to_hex(hash), {"x-amz-checksum-sha256: " + expected}};
  KVCODEC_TRY(const HttpReply reply, call("put", name, "PUT", path_of(name), part, deadline));
  const std::string_view stored = reply.header("x-amz-checksum-sha256");
  if (!stored.empty() && stored != expected) {
    return make_error(ErrorCode::corrupt, "{}: the server stored other bytes: SHA-256 {}, not {}",
                      what("put", name), stored, expected);
  }
  return ok_status();
}

Status S3Store::put_in_parts(std::string_view name, std::span<const std::byte> bytes,
                             Deadline deadline) {
  const std::string path = path_of(name);
  KVCODEC_TRY(const HttpReply begun,
              call("put", name, "POST", path, {.query = {{"uploads", ""}}}, deadline));
  const auto upload_id = parse_s3_upload_id(begun.text);
  if (!upload_id.ok()) {
    return make_error(upload_id.error().code, "{}: {}", what("put", name),
                      upload_id.error().message);
  }
  Status uploaded = upload_parts(name, bytes, *upload_id, deadline);
  if (!uploaded.ok()) {
    // Or the parts would stay, and be paid for, unseen. The first error is the one that counts;
    // where this fails too, the bucket's rule for unfinished uploads is left.
    (void)call("abort the upload of", name, "DELETE", path, {.query = {{"uploadId", *upload_id}}},
               Deadline::in(kAbortTime));
  }
  return uploaded;
}

Status S3Store::upload_parts(std::string_view name, std::span<const std::byte> bytes,
                             const std::string& upload_id, Deadline deadline) {
  const uint64_t part_bytes =
      std::max<uint64_t>(config_.part_bytes, (bytes.size() + kMaxParts - 1) / kMaxParts);
  std::string body = "<CompleteMultipartUpload>";
  for (uint64_t begin = 0, number = 1; begin < bytes.size(); begin += part_bytes, ++number) {
    const auto piece = bytes.subspan(begin, std::min<uint64_t>(part_bytes, bytes.size() - begin));
    const Part part{{{"partNumber", std::to_string(number)}, {"uploadId", upload_id}},
                    piece,
                    to_hex(sha256(piece)),
                    {}};
    KVCODEC_TRY(const HttpReply reply, call("put", name, "PUT", path_of(name), part, deadline));
    std::string_view tag = reply.header("etag");
    if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"') {
      tag = tag.substr(1, tag.size() - 2);
    }
    // It goes into XML: what is more than digits and letters is no entity tag of S3's.
    if (tag.empty() || tag.find_first_of("<>&\"'") != std::string_view::npos) {
      return make_error(ErrorCode::corrupt, "{}: part {} got the entity tag '{}'",
                        what("put", name), number, tag.substr(0, 60));
    }
    body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>\"{}\"</ETag></Part>", number, tag);
  }
  body += "</CompleteMultipartUpload>";
  return complete(name, upload_id, body, bytes.size(), deadline);
}

Status S3Store::complete(std::string_view name, const std::string& upload_id,
                         const std::string& body, uint64_t bytes, Deadline deadline) {
  const auto content = std::as_bytes(std::span(body));
  const Part part{{{"uploadId", upload_id}}, content, to_hex(sha256(content)), {}};
  int attempts = 0;
  bool unknown = false;
  const auto done = http_with_retries(
      *client_, deadline, what("put", name),
      [&]() -> Result<HttpRequest> {
        ++attempts;
        return request("POST", path_of(name), part);
      },
      [&](const Status& transfer, const HttpReply& reply) -> Status {
        KVCODEC_CHECK(transfer);
        std::string code;
        if (reply.status == 200) {
          KVCODEC_TRY(code, parse_s3_complete(reply.text));
          if (code.empty()) return ok_status();
        } else {
          code = parse_s3_error(reply.text).code;
        }
        // An earlier attempt may have completed it, and its answer was lost.
        unknown = code == "NoSuchUpload" && attempts > 1;
        if (unknown) return ok_status();
        if (reply.status != 200) return refused(name, reply);
        return make_error(code == "InternalError" ? ErrorCode::unavailable : ErrorCode::io,
                          "the upload was not completed: {}", code);
      });
  if (!done.ok()) {
    // not_found would look like a cache miss.
    if (done.error().code != ErrorCode::not_found) return done.error();
    return make_error(ErrorCode::io, "{}: the upload is gone", what("put", name));
  }
  if (!unknown) return ok_status();
  const auto there = stat_until(name, deadline);
  if (there.ok() && there->bytes == bytes) return ok_status();
  return make_error(ErrorCode::unavailable, "{}: the upload vanished while it was completed",
                    what("put", name));
}

}  // namespace kvcodec
