// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvcodec/codec.h"

namespace kvcodec::format {

// The bytes of an object are header, then the payloads of its pictures back to back. Everything
// here is specified in docs/format.md; field order there is the byte order.
// Tiers exact and int8 are version 1, byte for byte; the calibrated ones came with version 2.
inline constexpr uint16_t kVersion = 2;
inline constexpr size_t kEscapeBytes = 16;
inline constexpr uint32_t kMaxChunkTokens = 8192;  // a picture is no wider

// How the samples of a picture are stored. Values are part of the format; append only.
enum class Coding : uint8_t {
  raw = 0,        // the bytes themselves, without padding
  hevc = 1,       // slice data, Main profile
  hevc_rice = 2,  // slice data, format range extensions with persistent Rice adaptation
};
const char* coding_name(Coding coding);

// Which part of a value a picture holds. Values are part of the format; append only.
enum class Plane : uint8_t {
  symbols = 0,   // 8-bit samples; codings raw, hevc, hevc_rice
  low_bits = 1,  // exact: the bits that symbols do not hold; coding raw
};

struct Picture {
  KvKind kind = KvKind::key;
  Plane plane = Plane::symbols;
  Coding coding = Coding::raw;
  uint32_t first_row = 0, rows = 0;  // layout rows of this kind
  uint32_t width = 0, height = 0;    // symbols: samples as coded, whatever the coding; low_bits: 0
  uint64_t offset = 0, bytes = 0;    // from the start of the object
  uint64_t payload_checksum = 0;     // of the stored bytes
  // Symbols: of rows x tokens samples, row by row. Coding raw and low_bits: payload_checksum.
  uint64_t content_checksum = 0;
};

// A code outside [-127, 127]; its sample is 128. Sorted by (kind, row, token), each once.
struct Escape {
  KvKind kind = KvKind::key;
  // int8 and identity: natural row, layer * channels + head * head_dim + dim. Profile basis:
  // component, counted over the groups of the kind.
  uint32_t row = 0;
  uint32_t token = 0;
  int32_t code = 0;
  bool operator==(const Escape&) const = default;
};

// Version 2: consecutive layers of a kind that share a basis.
// Everything below is checked by read_header.
struct BasisGroup {
  KvKind kind = KvKind::key;
  uint32_t first_layer = 0, layers = 0;
  uint32_t components = 0;              // rows of the basis; identity: channels of the layers
  uint32_t live_rows = 0;               // components in pictures; the rest has codes of zero
  float step = 0;                       // identity: 0, each layer has its own
  float delta[2] = {0, 0};              // added to |code|, where that is 1 and where it is more
  float noise = 0, relative_error = 0;  // GroupDistortion
};

// What the rows of a calibrated chunk are. Values are part of the format; append only.
enum class Basis : uint8_t { profile = 0, identity = 1 };

struct Header {  // NOLINT(readability-identifier-naming): clang copies arrays by a loop of its own
  Tier tier = Tier::exact;
  ChunkId id;
  Digest profile;
  uint32_t tokens = 0;
  KvShape shape;
  Rope rope;
  uint32_t sink_tokens = 0;         // leading tokens of this chunk stored exactly; 0 for exact
  uint32_t max_picture_height = 0;  // the layout follows from it
  // exact: mantissa bits in the symbols plane, by kind. f16: 0 to 3; bf16, f32: 0.
  uint8_t symbol_mantissa_bits[2] = {0, 0};

  Basis basis = Basis::profile;  // calibrated tiers

  std::vector<BasisGroup> groups;  // calibrated: those of K by layer, then those of V
  // By kind, natural row order: sort key (exact: centre too). Not with a profile's basis.
  std::vector<uint8_t> row_keys[2];
  std::vector<float> steps[2];          // int8, identity: one a layer
  std::vector<int16_t> row_offsets[2];  // int8, identity: mean of a row, in steps
  std::vector<std::byte> sinks;         // [layer][K|V][token][head][dim]
  std::vector<Escape> escapes;
  std::vector<Picture> pictures;

  uint64_t object_bytes = 0;
  uint32_t rows(KvKind kind) const { return shape.layers * shape.channels(kind); }
  uint16_t version() const { return is_calibrated(tier) ? 2 : 1; }
  // Whether natural rows have keys by which they are sorted.
  bool has_row_keys() const { return !is_calibrated(tier) || basis == Basis::identity; }
  // Whether layers have steps, and rows offsets.
  bool has_layer_steps() const { return tier != Tier::exact && has_row_keys(); }
  // Whether rows are components of a profile's basis.
  bool has_basis() const { return !has_row_keys(); }
};

// The header's bytes. Requires a header that read_header would accept, offsets apart:
// picture offsets and object_bytes are filled in here, from the pictures' sizes. No two headers
// that read_header accepts have the same fields: write_header(read_header(b)) gives b.
std::vector<std::byte> write_header(Header& header);

// Bytes of the header at the start of an object, from its first kPrefixBytes bytes. Checks magic
// and version; the number is not more than the object's own size field, but else unchecked.
inline constexpr size_t kPrefixBytes = 24;
Result<uint32_t> header_bytes(std::span<const std::byte> prefix);

// Parses and checks everything that can be checked without the payload: magic, version, checksum,
// limits, derived sizes, that the pictures are those the layout gives, offsets without gaps.
// `bytes` may end after the header. Allocates no more than a small multiple of bytes.size().
// corrupt (unsupported for a newer version) names the field, its offset, expected and found.
Result<Header> read_header(std::span<const std::byte> bytes, const Limits& limits);

// The pictures of a chunk in file order, codings, offsets, sizes and checksums left zero. Rows of
// a kind are cut into groups (whole layers, or pieces of one layer) of at most max_picture_height.
std::vector<Picture> layout_pictures(const Header& header);

// Rows [first_row, first_row + rows) of a kind that are sorted together by row_keys: the group
// that a picture lies in.
struct RowGroup {
  uint32_t first_row = 0, rows = 0;
};
std::vector<RowGroup> row_groups(const KvShape& shape, KvKind kind, uint32_t max_picture_height);

// Bytes of a low_bits payload of `rows` rows: each row is tokens low bytes, then the second bytes
// and so on, then the remaining bits packed from bit 0 upwards, padded to a byte.
uint64_t low_bits_bytes(const Header& header, KvKind kind, uint32_t rows);
// Bits of a value that symbols do not hold.
uint32_t low_bits_count(DType dtype, uint32_t symbol_mantissa_bits);

}  // namespace kvcodec::format
