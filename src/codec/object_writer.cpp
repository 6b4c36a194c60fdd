// SPDX-License-Identifier: Apache-2.0
#include "codec/object_writer.h"

#include "base/error.h"
#include "format/header_fields.h"

namespace kvcodec {

namespace {

Status check_header_size(const format::Header& header) {
  const uint64_t header_bytes = format::derive_header_bytes(
      header, header.groups.size(), header.escapes.size(), header.pictures.size());
  if (header_bytes <= UINT32_MAX) return ok_status();
  return make_error(ErrorCode::invalid_argument,
                    "the chunk needs a header of {} bytes ({} escapes), the format allows {}",
                    header_bytes, header.escapes.size(), UINT32_MAX);
}

std::vector<std::byte> join(const ObjectToWrite& parts) {
  std::vector<std::byte> object = format::write_header(*parts.header);
  object.reserve(parts.header->object_bytes);
  for (PictureContent& content : parts.contents) {
    object.insert(object.end(), content.stored.begin(), content.stored.end());
    content.stored = {};
  }
  return object;
}

}  // namespace

std::vector<Result<std::vector<std::byte>>> write_objects(std::span<const ObjectToWrite> objects,
                                                          int threads,
                                                          const EncodePictures& encode) {
  std::vector<Status> statuses;
  std::vector<PicturesToStore> pictures;
  for (const ObjectToWrite& object : objects) {
    statuses.push_back(check_header_size(*object.header));
    if (statuses.back().ok())
      pictures.push_back({object.header->tokens, object.header->pictures, object.contents});
  }
  const Status stored = store_pictures(pictures, threads, encode);
  std::vector<Result<std::vector<std::byte>>> written;
  for (size_t i = 0; i < objects.size(); ++i) {
    if (!statuses[i].ok())
      written.emplace_back(std::move(statuses[i].error()));
    else if (!stored.ok())
      written.emplace_back(stored.error());
    else
      written.emplace_back(join(objects[i]));
  }
  return written;
}

}  // namespace kvcodec
