// SPDX-License-Identifier: Apache-2.0
#include "format/header.h"

#include <cassert>

#include "base/bytes.h"
#include "base/hash.h"
#include "format/header_fields.h"

namespace kvcodec::format {

uint64_t derive_header_bytes(const Header& header, uint64_t groups, uint64_t escapes,
                             uint64_t pictures) {
  const uint64_t rows = uint64_t{header.rows(KvKind::key)} + header.rows(KvKind::value);
  uint64_t bytes = kFixedBytes + uint64_t{header.rope.rotary_dims} / 2 * sizeof(uint64_t);
  bytes += groups * kGroupBytes;
  if (header.has_row_keys()) bytes += rows;
  if (header.has_layer_steps()) {
    const uint64_t kinds = header.shape.value_dim > 0 ? 2 : 1;
    bytes += kinds * header.shape.layers * sizeof(float) + rows * sizeof(int16_t);
  }
  bytes += header.shape.token_bytes() * uint64_t{header.sink_tokens};
  return bytes + escapes * kEscapeBytes + pictures * kPictureBytes + kChecksumBytes;
}

namespace {

void put_fixed(ByteWriter& out, const Header& header, uint64_t bytes) {
  out.put_bytes(std::as_bytes(std::span(kMagic)));
  out.put(header.version());
  out.put(static_cast<uint16_t>(header.tier));
  out.put(static_cast<uint32_t>(bytes));
  out.put(header.object_bytes);
  out.put_bytes(header.id.ns.bytes);
  out.put_bytes(header.id.key.bytes);
  out.put_bytes(header.profile.bytes);
  out.put(header.id.first_token);
  out.put(header.tokens);
  out.put(header.shape.layers);
  out.put(header.shape.kv_heads);
  out.put(header.shape.key_dim);
  out.put(header.shape.value_dim);
  out.put(static_cast<uint16_t>(header.shape.dtype));
  out.put(static_cast<uint8_t>(header.rope.style));
  out.put(static_cast<uint8_t>(header.basis));
  out.put(header.rope.rotary_dims);
  out.put(header.sink_tokens);
  out.put(header.max_picture_height);
  out.put(static_cast<uint32_t>(header.pictures.size()));
  out.put(static_cast<uint32_t>(header.escapes.size()));
  out.put(header.symbol_mantissa_bits[0]);
  out.put(header.symbol_mantissa_bits[1]);
  out.put(uint16_t{0});
  out.put(static_cast<uint32_t>(header.groups.size()));
  assert(out.size() == kFixedBytes);
}

void put_group(ByteWriter& out, const BasisGroup& group) {
  out.put(static_cast<uint8_t>(group.kind));
  for (int i = 0; i < 3; ++i) out.put(uint8_t{0});
  out.put(group.first_layer);
  out.put(group.layers);
  out.put(group.components);
  out.put(group.live_rows);
  out.put(group.step);
  out.put(group.delta[0]);
  out.put(group.delta[1]);
  out.put(group.noise);
  out.put(group.relative_error);
}

void put_arrays(ByteWriter& out, const Header& header) {
  out.put_bytes(std::as_bytes(std::span(header.rope.phase_steps)));
  for (const BasisGroup& group : header.groups) put_group(out, group);
  for (const auto& keys : header.row_keys) out.put_bytes(std::as_bytes(std::span(keys)));
  for (const auto& steps : header.steps) out.put_bytes(std::as_bytes(std::span(steps)));
  for (const auto& offsets : header.row_offsets) out.put_bytes(std::as_bytes(std::span(offsets)));
  out.put_bytes(header.sinks);
  for (const Escape& escape : header.escapes) {
    out.put(static_cast<uint32_t>(escape.kind));
    out.put(escape.row);
    out.put(escape.token);
    out.put(escape.code);
  }
}

void put_picture(ByteWriter& out, const Picture& picture) {
  out.put(static_cast<uint8_t>(picture.kind));
  out.put(static_cast<uint8_t>(picture.plane));
  out.put(static_cast<uint8_t>(picture.coding));
  out.put(uint8_t{0});
  out.put(picture.first_row);
  out.put(picture.rows);
  out.put(picture.width);
  out.put(picture.height);
  out.put(picture.offset);
  out.put(picture.bytes);
  out.put(picture.payload_checksum);
  out.put(picture.content_checksum);
}

}  // namespace

std::vector<std::byte> write_header(Header& header) {
  const uint64_t bytes = derive_header_bytes(header, header.groups.size(), header.escapes.size(),
                                             header.pictures.size());
  assert(bytes <= UINT32_MAX);
  uint64_t offset = bytes;
  for (Picture& picture : header.pictures) {
    picture.offset = offset;
    offset += picture.bytes;
  }
  header.object_bytes = offset;

  ByteWriter out;
  out.bytes().reserve(bytes);
  put_fixed(out, header, bytes);
  put_arrays(out, header);
  for (const Picture& picture : header.pictures) put_picture(out, picture);
  out.put(checksum64(out.bytes()));
  assert(out.size() == bytes);
  return std::move(out.bytes());
}

}  // namespace kvcodec::format
