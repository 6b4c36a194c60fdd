// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "format/header.h"
#include "kvcodec/codec.h"

namespace kvcodec {

const char* tier_name(Tier tier) {
  switch (tier) {
    case Tier::exact: return "exact";
    case Tier::int8: return "int8";
    case Tier::high: return "high";
    case Tier::balanced: return "balanced";
    case Tier::small: return "small";
  }
  return "unknown";
}

Result<Tier> tier_from_name(std::string_view name) {
  for (Tier tier : {Tier::exact, Tier::int8, Tier::high, Tier::balanced, Tier::small}) {
    if (name == tier_name(tier)) return tier;
  }
  return make_error(ErrorCode::invalid_argument,
                    "tier: expected exact, int8, high, balanced or small, found \"{}\"", name);
}

uint64_t ChunkInfo::values() const {
  return uint64_t{tokens} * shape.layers *
         (uint64_t{shape.channels(KvKind::key)} + shape.channels(KvKind::value));
}

double ChunkInfo::bits_per_value() const {
  return 8.0 * static_cast<double>(object_bytes) / static_cast<double>(values());
}

Result<ChunkInfo> read_chunk_info(std::span<const std::byte> bytes, const Limits& limits) {
  KVCODEC_TRY(const format::Header header, format::read_header(bytes, limits));
  ChunkInfo info;
  info.format_version = header.version();
  info.tier = header.tier;
  info.id = header.id;
  info.profile = header.profile;
  info.shape = header.shape;
  info.rope = header.rope;
  info.tokens = header.tokens;
  info.sink_tokens = header.sink_tokens;
  info.escapes = header.escapes.size();
  KVCODEC_TRY(info.header_bytes, format::header_bytes(bytes.first(format::kPrefixBytes)));
  info.object_bytes = header.object_bytes;
  for (const format::BasisGroup& group : header.groups) {
    info.distortions.push_back({group.kind, group.first_layer, group.layers, group.components,
                                group.live_rows, group.step, group.noise, group.relative_error});
  }
  for (const format::Picture& picture : header.pictures) {
    info.pictures.push_back({picture.kind, static_cast<uint32_t>(picture.plane), picture.first_row,
                             picture.rows, picture.width, picture.height,
                             format::coding_name(picture.coding), picture.offset, picture.bytes});
  }
  return info;
}

}  // namespace kvcodec
