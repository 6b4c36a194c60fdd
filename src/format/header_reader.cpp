// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <tuple>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "format/header_fields.h"

namespace kvcodec::format {

namespace {

template <typename Expected, typename Found>
Error bad_field(std::string_view field, size_t offset, const Expected& expected,
                const Found& found) {
  return make_error(ErrorCode::corrupt, "header field {} at offset {}: expected {}, found {}",
                    field, offset, expected, found);
}

std::string range_text(uint64_t low, uint64_t high) { return fmt::format("{} to {}", low, high); }

// Reads the fields of a header whose checksum is right, in their order. Sizes are checked before
// what they size is allocated: every array lies inside the header's own bytes.
class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> bytes, const Limits& limits)
      : bytes_(bytes), limits_(limits), at_(kFixedBytes) {}

  Result<Header> read() {
    KVCODEC_CHECK(read_identity());
    KVCODEC_CHECK(read_shape());
    KVCODEC_CHECK(read_rope());
    KVCODEC_CHECK(read_coding());
    KVCODEC_CHECK(check_sizes());
    KVCODEC_CHECK(read_groups());
    KVCODEC_CHECK(read_arrays());
    KVCODEC_CHECK(read_escapes());
    KVCODEC_CHECK(read_pictures());
    return std::move(header_);
  }

 private:
  template <typename T>
  T at(size_t offset) const {
    return load_le<T>(bytes_.data() + offset);
  }
  template <typename T>
  T next() {
    const T value = at<T>(at_);
    at_ += sizeof(T);
    return value;
  }
  template <typename T>
  void read_array(std::vector<T>& into, size_t count) {
    into.resize(count);
    if (count > 0) std::memcpy(into.data(), bytes_.data() + at_, count * sizeof(T));
    at_ += count * sizeof(T);
  }
  // A u32 field whose value must be in [low, high].
  Status read_u32(uint32_t& into, const char* field, size_t offset, uint64_t low, uint64_t high) {
    into = at<uint32_t>(offset);
    if (into < low || into > high) return bad_field(field, offset, range_text(low, high), into);
    return ok_status();
  }
  Digest digest_at(size_t offset) const {
    Digest digest;
    std::memcpy(digest.bytes.data(), bytes_.data() + offset, digest.bytes.size());
    return digest;
  }
  uint64_t rows(KvKind kind) const { return header_.rows(kind); }

  Status read_identity();
  Status read_shape();
  Status read_rope();
  Status read_coding();
  Status check_sizes();
  Status check_picture_count();
  Status read_groups();
  Status read_group(uint32_t index, uint32_t (&layer)[2]);
  struct RowRange {
    KvKind kind;
    uint32_t begin, end;
  };
  std::vector<RowRange> escape_rows() const;
  Status read_arrays();
  Status read_layer_steps();
  Status read_escapes();
  Status read_pictures();
  Status read_picture(const Picture& laid_out, size_t index, uint64_t& offset);

  const std::span<const std::byte> bytes_;  // exactly the header
  const Limits& limits_;
  size_t at_;  // of the next array
  uint32_t group_count_ = 0, escape_count_ = 0, picture_count_ = 0;
  Header header_;
};

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

Status HeaderReader::read_groups() {
  read_array(header_.rope.phase_steps, header_.rope.rotary_dims / 2);
  if (!is_calibrated(header_.tier)) return ok_status();
  uint32_t layer[2] = {0, 0};
  header_.groups.reserve(group_count_);
  for (uint32_t i = 0; i < group_count_; ++i) KVCODEC_CHECK(read_group(i, layer));
  for (KvKind kind : kKvKinds) {
    const uint32_t end = layer[static_cast<size_t>(kind)];
    if (header_.shape.head_dim(kind) > 0 && end != header_.shape.layers) {
      return bad_field(
          "group_count", kGroupCountAt,
          fmt::format("groups of all {} layers of {}", header_.shape.layers, kv_kind_name(kind)),
          fmt::format("{} layers", end));
    }
  }
  return check_picture_count();
}

// layer: where the next group of each kind must begin.
Status HeaderReader::read_group(uint32_t index, uint32_t (&layer)[2]) {
  const size_t start = at_;
  const auto bad = [&](const char* field, size_t at, const auto& expected, const auto& found) {
    return bad_field(fmt::format("groups[{}].{}", index, field), start + at, expected, found);
  };
  const auto kind = next<uint8_t>();
  const uint32_t zeros = next<uint8_t>() + next<uint8_t>() + next<uint8_t>();
  const bool after_values = !header_.groups.empty() && header_.groups.back().kind == KvKind::value;
  const uint8_t most = header_.shape.value_dim > 0 ? 1 : 0;
  if (kind < (after_values ? 1 : 0) || kind > most)
    return bad("kind", 0, range_text(after_values ? 1 : 0, most), kind);
  if (zeros != 0) return bad("reserved", 1, 0, zeros);
  BasisGroup group;
  group.kind = static_cast<KvKind>(kind);
  group.first_layer = next<uint32_t>();
  group.layers = next<uint32_t>();
  group.components = next<uint32_t>();
  group.live_rows = next<uint32_t>();
  group.step = next<float>();
  group.delta[0] = next<float>();
  group.delta[1] = next<float>();
  group.noise = next<float>();
  group.relative_error = next<float>();
  uint32_t& begin = layer[kind];
  if (group.first_layer != begin) return bad("first_layer", 4, begin, group.first_layer);
  const uint32_t left = header_.shape.layers - begin;
  if (group.layers == 0 || group.layers > left)
    return bad("layers", 8, range_text(1, left), group.layers);
  begin += group.layers;
  const uint32_t channels = group.layers * header_.shape.channels(group.kind);
  const bool identity = header_.basis == Basis::identity;
  if (group.components < (identity ? channels : 1) || group.components > channels)
    return bad("components", 12, range_text(identity ? channels : 1, channels), group.components);
  if (group.live_rows > group.components)
    return bad("live_rows", 16, range_text(0, group.components), group.live_rows);
  if (identity ? group.step != 0 : !std::isfinite(group.step) || group.step <= 0)
    return bad("step", 20, identity ? "0" : "a finite number above 0", group.step);
  for (size_t i = 0; i < 2; ++i) {
    if (!(std::abs(group.delta[i]) <= 1))
      return bad("delta", 24 + 4 * i, "a number from -1 to 1", group.delta[i]);
  }
  if (!std::isfinite(group.noise) || group.noise < 0)
    return bad("noise", 32, "a finite number, at least 0", group.noise);
  if (!std::isfinite(group.relative_error) || group.relative_error < 0)
    return bad("relative_error", 36, "a finite number, at least 0", group.relative_error);
  header_.groups.push_back(group);
  return ok_status();
}

// Rows that escapes may name, as ascending ranges: natural ones, or the live ones of each group.
std::vector<HeaderReader::RowRange> HeaderReader::escape_rows() const {
  std::vector<RowRange> ranges;
  if (header_.has_row_keys()) {
    for (KvKind kind : kKvKinds) ranges.push_back({kind, 0, header_.rows(kind)});
    return ranges;
  }
  uint32_t first[2] = {0, 0};
  for (const BasisGroup& group : header_.groups) {
    uint32_t& row = first[static_cast<size_t>(group.kind)];
    ranges.push_back({group.kind, row, row + group.live_rows});
    row += group.components;
  }
  return ranges;
}

Status HeaderReader::read_arrays() {
  for (KvKind kind : kKvKinds) {
    if (header_.has_row_keys()) read_array(header_.row_keys[static_cast<size_t>(kind)], rows(kind));
  }
  KVCODEC_CHECK(read_layer_steps());
  read_array(header_.sinks, header_.shape.token_bytes() * header_.sink_tokens);
  return ok_status();
}

Status HeaderReader::read_layer_steps() {
  if (!header_.has_layer_steps()) return ok_status();
  for (KvKind kind : kKvKinds) {
    if (rows(kind) == 0) continue;
    const size_t start = at_;
    std::vector<float>& steps = header_.steps[static_cast<size_t>(kind)];
    read_array(steps, header_.shape.layers);
    for (size_t layer = 0; layer < steps.size(); ++layer) {
      if (!std::isfinite(steps[layer]) || steps[layer] <= 0) {
        return bad_field(fmt::format("steps[{}][{}]", kv_kind_name(kind), layer),
                         start + layer * sizeof(float), "a finite number above 0", steps[layer]);
      }
    }
  }
  for (KvKind kind : kKvKinds) {
    read_array(header_.row_offsets[static_cast<size_t>(kind)], rows(kind));
  }
  return ok_status();
}

Status HeaderReader::read_escapes() {
  const std::vector<RowRange> ranges = escape_rows();
  auto range = ranges.begin();
  header_.escapes.reserve(escape_count_);
  for (uint32_t i = 0; i < escape_count_; ++i) {
    const size_t start = at_;
    const auto kind = next<uint32_t>();
    Escape escape;
    escape.row = next<uint32_t>();
    escape.token = next<uint32_t>();
    escape.code = next<int32_t>();
    auto bad = [&](const char* field, size_t offset, const auto& expected, const auto& found) {
      return bad_field(fmt::format("escapes[{}].{}", i, field), start + offset, expected, found);
    };
    if (kind > 1) return bad("kind", 0, "0 (K) or 1 (V)", kind);
    escape.kind = static_cast<KvKind>(kind);
    if (i > 0) {
      const Escape& last = header_.escapes.back();
      if (std::tie(last.kind, last.row, last.token) >=
          std::tie(escape.kind, escape.row, escape.token)) {
        return bad("position", 0, "ascending (kind, row, token)",
                   fmt::format("({}, {}, {}) after ({}, {}, {})", kind, escape.row, escape.token,
                               static_cast<int>(last.kind), last.row, last.token));
      }
    }
    const auto place = std::tie(escape.kind, escape.row);
    while (range != ranges.end() && std::tie(range->kind, range->end) <= place) ++range;
    if (range == ranges.end() || std::tie(range->kind, range->begin) > place)
      return bad("row", 4, "a row that has pictures", escape.row);
    if (escape.token < header_.sink_tokens || escape.token >= header_.tokens) {
      return bad("token", 8, fmt::format("{} to before {}", header_.sink_tokens, header_.tokens),
                 escape.token);
    }
    if (escape.code >= -127 && escape.code <= 127) {
      return bad("code", 12, "below -127 or above 127", escape.code);
    }
    header_.escapes.push_back(escape);
  }
  return ok_status();
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
