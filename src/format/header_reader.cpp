// SPDX-License-Identifier: Apache-2.0
#include "format/header_reader.h"

#include <algorithm>

#include "base/hash.h"

namespace kvcodec::format {

Status HeaderReader::read_identity() {
  const auto tier = at<uint16_t>(kTierAt);
  const bool calibrated = at<uint16_t>(kVersionAt) == 2;
  if (tier < (calibrated ? 3 : 1) || tier > (calibrated ? 5 : 2)) {
    return bad_field("tier", kTierAt,
                     calibrated ? "3 (high), 4 (balanced) or 5 (small)" : "1 (exact) or 2 (int8)",
                     tier);
  }
  header_.tier = static_cast<Tier>(tier);
  header_.object_bytes = at<uint64_t>(kObjectBytesAt);
  if (header_.object_bytes < bytes_.size() || header_.object_bytes > limits_.max_object_bytes) {
    return bad_field("object_bytes", kObjectBytesAt,
                     range_text(bytes_.size(), limits_.max_object_bytes), header_.object_bytes);
  }
  header_.id.ns = digest_at(kNamespaceAt);
  header_.id.key = digest_at(kKeyAt);
  header_.profile = digest_at(kProfileAt);
  if (calibrated && header_.profile == Digest{})
    return bad_field("profile", kProfileAt, "the digest of a profile", "zeros");
  header_.id.first_token = at<uint32_t>(kFirstTokenAt);
  const uint32_t most = std::min(kMaxChunkTokens, limits_.max_tokens);
  KVCODEC_CHECK(read_u32(header_.tokens, "tokens", kTokensAt, 1, most));
  if (header_.id.first_token > UINT32_MAX - header_.tokens) {
    return bad_field("first_token", kFirstTokenAt, range_text(0, UINT32_MAX - header_.tokens),
                     header_.id.first_token);
  }
  return ok_status();
}

Status HeaderReader::read_shape() {
  KvShape& shape = header_.shape;
  KVCODEC_CHECK(read_u32(shape.layers, "layers", kLayersAt, 1, kMaxLayers));
  KVCODEC_CHECK(read_u32(shape.kv_heads, "kv_heads", kKvHeadsAt, 1, kMaxHeads));
  KVCODEC_CHECK(read_u32(shape.key_dim, "key_dim", kKeyDimAt, 1, kMaxHeadDim));
  KVCODEC_CHECK(read_u32(shape.value_dim, "value_dim", kValueDimAt, 0, kMaxHeadDim));
  const auto dtype = at<uint16_t>(kDtypeAt);
  if (dtype < 1 || dtype > 3) return bad_field("dtype", kDtypeAt, "1 (f16) to 3 (f32)", dtype);
  shape.dtype = static_cast<DType>(dtype);
  for (KvKind kind : kKvKinds) {
    const uint64_t count = uint64_t{shape.layers} * shape.kv_heads * shape.head_dim(kind);
    if (count > kMaxRows) {
      return bad_field("layers * kv_heads * head dim", kLayersAt,
                       fmt::format("at most {} rows of {}", kMaxRows, kv_kind_name(kind)), count);
    }
  }
  const uint64_t decoded = uint64_t{shape.token_bytes()} * header_.tokens;
  if (decoded > limits_.max_decoded_bytes) {
    return bad_field("decoded size (tokens, shape)", kTokensAt,
                     fmt::format("at most {} bytes", limits_.max_decoded_bytes), decoded);
  }
  return ok_status();
}

Status HeaderReader::read_rope() {
  const auto style = at<uint8_t>(kRopeStyleAt);
  if (style > 2) {
    return bad_field("rope_style", kRopeStyleAt, "0 (none), 1 (interleaved) or 2 (neox)", style);
  }
  header_.rope.style = static_cast<Rope::Style>(style);
  const auto dims = at<uint32_t>(kRotaryDimsAt);
  const uint32_t most = header_.shape.key_dim;
  if (style == 0 ? dims != 0 : dims == 0 || dims % 2 != 0 || dims > most) {
    return bad_field("rotary_dims", kRotaryDimsAt,
                     style == 0 ? std::string("0, as rope_style is 0")
                                : fmt::format("an even number from 2 to key_dim {}", most),
                     dims);
  }
  header_.rope.rotary_dims = dims;
  return ok_status();
}

Status HeaderReader::read_coding() {
  const uint32_t most_sinks = header_.tier == Tier::exact ? 0 : header_.tokens;
  KVCODEC_CHECK(read_u32(header_.sink_tokens, "sink_tokens", kSinkTokensAt, 0, most_sinks));
  KVCODEC_CHECK(read_u32(header_.max_picture_height, "max_picture_height", kMaxPictureHeightAt,
                         kMinPictureHeight, kMaxPictureHeight));
  if (header_.max_picture_height % 8 != 0) {
    return bad_field("max_picture_height", kMaxPictureHeightAt, "a multiple of 8",
                     header_.max_picture_height);
  }
  for (KvKind kind : kKvKinds) {
    const auto i = static_cast<size_t>(kind);
    const auto bits = at<uint8_t>(kSymbolBitsAt + i);
    const bool split = header_.tier == Tier::exact && header_.shape.dtype == DType::f16 &&
                       header_.shape.head_dim(kind) > 0;
    if (bits > (split ? 3 : 0)) {
      return bad_field(fmt::format("symbol_mantissa_bits of {}", kv_kind_name(kind)),
                       kSymbolBitsAt + i, split ? "0 to 3" : "0", bits);
    }
    header_.symbol_mantissa_bits[i] = bits;
  }
  const bool calibrated = is_calibrated(header_.tier);
  const auto basis = at<uint8_t>(kBasisAt);
  const auto zero = at<uint16_t>(kZeroBAt);
  if (basis > (calibrated ? 1 : 0)) {
    return bad_field("basis", kBasisAt, calibrated ? "0 (profile) or 1 (identity)" : "0", basis);
  }
  header_.basis = static_cast<Basis>(basis);
  if (zero != 0) return bad_field("reserved", kZeroBAt, 0, zero);
  const uint32_t kinds = header_.shape.value_dim > 0 ? 2 : 1;
  return read_u32(group_count_, "group_count", kGroupCountAt, calibrated ? kinds : 0,
                  calibrated ? uint64_t{kinds} * header_.shape.layers : 0);
}

Status HeaderReader::check_sizes() {
  escape_count_ = at<uint32_t>(kEscapeCountAt);
  picture_count_ = at<uint32_t>(kPictureCountAt);
  if (header_.tier == Tier::exact && escape_count_ != 0) {
    return bad_field("escape_count", kEscapeCountAt, "0 in tier exact", escape_count_);
  }
  if (!is_calibrated(header_.tier)) KVCODEC_CHECK(check_picture_count());
  const uint64_t derived =
      derive_header_bytes(header_, group_count_, escape_count_, picture_count_);
  if (derived != bytes_.size()) {
    return bad_field("header_bytes", kHeaderBytesAt,
                     fmt::format("{} from the counts and the shape", derived), bytes_.size());
  }
  return ok_status();
}

Status HeaderReader::check_picture_count() {
  const uint64_t laid_out = count_pictures(header_);
  if (picture_count_ == laid_out) return ok_status();
  return bad_field("picture_count", kPictureCountAt, laid_out, picture_count_);
}

Status HeaderReader::read_pictures() {
  header_.pictures = layout_pictures(header_);
  uint64_t offset = bytes_.size();
  for (size_t i = 0; i < header_.pictures.size(); ++i) {
    KVCODEC_CHECK(read_picture(header_.pictures[i], i, offset));
  }
  if (offset != header_.object_bytes) {
    return bad_field("object_bytes", kObjectBytesAt,
                     fmt::format("{}, the end of the last picture", offset), header_.object_bytes);
  }
  return ok_status();
}

Status HeaderReader::read_picture(const Picture& laid_out, size_t index, uint64_t& offset) {
  const size_t start = at_;
  auto bad = [&](const char* field, size_t at, const auto& expected, const auto& found) {
    return bad_field(fmt::format("pictures[{}].{}", index, field), start + at, expected, found);
  };
  const auto kind = next<uint8_t>();
  const auto plane = next<uint8_t>();
  const auto coding = next<uint8_t>();
  const auto zero = next<uint8_t>();
  const bool symbols = laid_out.plane == Plane::symbols;
  if (kind != static_cast<uint8_t>(laid_out.kind)) {
    return bad("kind", 0, static_cast<int>(laid_out.kind), kind);
  }
  if (plane != static_cast<uint8_t>(laid_out.plane)) {
    return bad("plane", 1, static_cast<int>(laid_out.plane), plane);
  }
  if (coding > (symbols ? 2 : 0)) {
    return bad("coding", 2, symbols ? "0 (raw), 1 (hevc) or 2 (hevc-rice)" : "0 (raw)", coding);
  }
  if (zero != 0) return bad("reserved", 3, 0, zero);
  const std::pair<const char*, uint32_t> derived[] = {{"first_row", laid_out.first_row},
                                                      {"rows", laid_out.rows},
                                                      {"width", laid_out.width},
                                                      {"height", laid_out.height}};
  for (const auto& [field, expected] : derived) {
    const auto found = next<uint32_t>();
    if (found != expected) return bad(field, at_ - 4 - start, expected, found);
  }
  Picture& picture = header_.pictures[index];
  picture.coding = static_cast<Coding>(coding);
  picture.offset = next<uint64_t>();
  picture.bytes = next<uint64_t>();
  picture.payload_checksum = next<uint64_t>();
  picture.content_checksum = next<uint64_t>();
  if (picture.offset != offset) return bad("offset", 20, offset, picture.offset);

  const uint64_t raw_size = symbols ? uint64_t{picture.rows} * header_.tokens
                                    : low_bits_bytes(header_, picture.kind, picture.rows);
  if (picture.coding == Coding::raw) {
    if (picture.bytes != raw_size) return bad("bytes", 28, raw_size, picture.bytes);
    if (picture.content_checksum != picture.payload_checksum) {
      return bad("content_checksum", 44,
                 fmt::format("{:016x}, the payload's", picture.payload_checksum),
                 fmt::format("{:016x}", picture.content_checksum));
    }
  } else if (picture.bytes == 0 || picture.bytes >= raw_size) {
    return bad("bytes", 28, fmt::format("above 0 and below {}, as raw", raw_size), picture.bytes);
  }
  const uint64_t left = header_.object_bytes - offset;
  if (picture.bytes > left) {
    return bad("bytes", 28, fmt::format("at most {} to the object's end", left), picture.bytes);
  }
  offset += picture.bytes;
  return ok_status();
}

namespace {

Status check_magic(std::span<const std::byte> bytes) {
  const size_t count = std::min(bytes.size(), kMagic.size());
  for (size_t i = 0; i < count; ++i) {
    if (static_cast<uint8_t>(bytes[i]) == kMagic[i]) continue;
    const char* hint = i < 4 ? "not a KVCodec chunk" : "damaged as by a text-mode transfer";
    return bad_field(fmt::format("magic ({})", hint), i, fmt::format("byte {:02x}", kMagic[i]),
                     fmt::format("{:02x}", static_cast<uint8_t>(bytes[i])));
  }
  return ok_status();
}

}  // namespace

Result<uint32_t> header_bytes(std::span<const std::byte> prefix) {
  KVCODEC_CHECK(check_magic(prefix));
  if (prefix.size() < kPrefixBytes) {
    return make_error(ErrorCode::corrupt,
                      "object truncated: a header has at least {} bytes, found {}",
                      kLeastHeaderBytes, prefix.size());
  }
  const auto version = load_le<uint16_t>(prefix.data() + kVersionAt);
  if (version > kVersion) {
    return make_error(ErrorCode::unsupported,
                      "header field version at offset {}: expected at most {}, found {}; a newer "
                      "program wrote this object",
                      kVersionAt, kVersion, version);
  }
  if (version == 0) return bad_field("version", kVersionAt, range_text(1, kVersion), version);
  const auto bytes = load_le<uint32_t>(prefix.data() + kHeaderBytesAt);
  const auto object_bytes = load_le<uint64_t>(prefix.data() + kObjectBytesAt);
  const size_t least = version == 1 ? kLeastHeaderBytes : kLeastCalibratedBytes;
  if (bytes < least || bytes > object_bytes) {
    return bad_field("header_bytes", kHeaderBytesAt,
                     fmt::format("at least {} and at most object_bytes {}", least, object_bytes),
                     bytes);
  }
  return bytes;
}

Result<Header> read_header(std::span<const std::byte> bytes, const Limits& limits) {
  KVCODEC_TRY(const uint32_t size, header_bytes(bytes.first(std::min(bytes.size(), kPrefixBytes))));
  if (bytes.size() < size) {
    return make_error(ErrorCode::corrupt, "object truncated: its header has {} bytes, found {}",
                      size, bytes.size());
  }
  const size_t checksum_at = size - kChecksumBytes;
  const uint64_t expected = checksum64(bytes.first(checksum_at));
  const auto found = load_le<uint64_t>(bytes.data() + checksum_at);
  if (found != expected) {
    return bad_field("header_checksum", checksum_at, fmt::format("{:016x}", expected),
                     fmt::format("{:016x}", found));
  }
  return HeaderReader(bytes.first(size), limits).read();
}

}  // namespace kvcodec::format
