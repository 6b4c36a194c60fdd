// SPDX-License-Identifier: Apache-2.0
#include "codec/object_writer.h"

#include "base/error.h"
#include "codec/picture_coder.h"
#include "format/header_fields.h"

namespace kvcodec {

Result<std::vector<std::byte>> write_object(format::Header& header,
                                            std::span<PictureContent> contents, int threads,
                                            const EncodePictures& encode) {
  const uint64_t header_bytes = format::derive_header_bytes(
      header, header.groups.size(), header.escapes.size(), header.pictures.size());
  if (header_bytes > UINT32_MAX) {
    return make_error(ErrorCode::invalid_argument,
                      "the chunk needs a header of {} bytes ({} escapes), the format allows {}",
                      header_bytes, header.escapes.size(), UINT32_MAX);
  }
  KVCODEC_CHECK(store_pictures(header.tokens, header.pictures, contents, threads, encode));
  std::vector<std::byte> object = format::write_header(header);
  object.reserve(header.object_bytes);
  for (PictureContent& content : contents) {
    object.insert(object.end(), content.stored.begin(), content.stored.end());
    content.stored = {};
  }
  return object;
}

}  // namespace kvcodec
