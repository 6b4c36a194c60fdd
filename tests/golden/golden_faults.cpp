// SPDX-License-Identifier: Apache-2.0
// Objects with one fault each. Where a fault is not the checksum itself, checksums are made right
// again, so that the check that is meant finds it.
#include <cmath>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/hash.h"
#include "format/header_fields.h"
#include "golden/golden_cases.h"

namespace kvcodec {

namespace {

using Bytes = std::vector<std::byte>;
using format::Header;
using format::Picture;

template <typename T>
void put(Bytes& object, size_t offset, T value) {
  std::memcpy(object.data() + offset, &value, sizeof value);
}

void flip(Bytes& object, size_t offset) { object[offset] ^= std::byte{0x10}; }

// `bytes`: of the header, which its field may not tell any more.
void fix_header(Bytes& object, size_t bytes) {
  const size_t at = bytes - format::kChecksumBytes;
  put(object, at, checksum64(std::span(object).first(at)));
}

// Where the arrays of an int8 object are.
struct Sections {
  size_t phase_steps, row_keys, steps, row_offsets, sinks, escapes, pictures, checksum, payload;
  explicit Sections(const Header& header) {
    phase_steps = format::kFixedBytes;
    row_keys = phase_steps + 8 * header.rope.phase_steps.size();
    const size_t rows = header.row_keys[0].size() + header.row_keys[1].size();
    steps = row_keys + rows;
    row_offsets = steps + 4 * (header.steps[0].size() + header.steps[1].size());
    sinks = row_offsets + 2 * (header.row_offsets[0].size() + header.row_offsets[1].size());
    escapes = sinks + header.sinks.size();
    pictures = escapes + format::kEscapeBytes * header.escapes.size();
    checksum = pictures + format::kPictureBytes * header.pictures.size();
    payload = checksum + format::kChecksumBytes;
  }
};

class FaultMaker {
 public:
  explicit FaultMaker(const std::string& folder)
      : int8_(read_golden(folder + "/good/int8_f16_interleaved.kvc")),
        exact_(read_golden(folder + "/good/exact_f16.kvc")),
        header_(*format::read_header(int8_, {})),
        at_(header_) {}

  std::vector<GoldenFault> make() {
    damage_beginning();
    cut();
    flip_each_section();
    claim_wrong_fields();
    break_arrays();
    break_pictures();
    ask_for_another();
    return std::move(faults_);
  }

 private:
  // `change` alters a copy of the int8 object; its header's checksum is then made right.
  template <typename Change>
  void add_fixed(const char* name, const char* message, const Change& change) {
    Bytes object = int8_;
    change(object);
    fix_header(object, at_.payload);
    add(name, message, std::move(object));
  }
  void add(const char* name, const char* message, Bytes object) {
    GoldenFault fault;
    fault.name = name;
    fault.message = message;
    fault.object = std::move(object);
    faults_.push_back(std::move(fault));
  }
  void add_flipped(const char* name, const char* message, size_t offset) {
    Bytes object = int8_;
    flip(object, offset);
    add(name, message, std::move(object));
  }
  void add_cut(const char* name, const char* message, size_t length) {
    add(name, message, Bytes(int8_.begin(), int8_.begin() + static_cast<ptrdiff_t>(length)));
  }

  void damage_beginning() {
    add("empty", "truncated: a header has at least 236 bytes, found 0", {});
    add_flipped("magic_wrong", "magic (not a KVCodec chunk) at offset 0", 0);
    Bytes text;
    for (size_t i = 0; i < int8_.size(); ++i) {
      const bool line_end =
          int8_[i] == std::byte{'\r'} && i + 1 < int8_.size() && int8_[i + 1] == std::byte{'\n'};
      if (!line_end) text.push_back(int8_[i]);
    }
    add("text_mode", "magic (damaged as by a text-mode transfer) at offset 4", text);
    add_fixed("version_2", "tier at offset 10: expected 3 (high)",
              [](Bytes& object) { put(object, 8, uint16_t{2}); });
    add_fixed("version_3", "version at offset 8: expected at most 2, found 3",
              [](Bytes& object) { put(object, 8, uint16_t{3}); });
    faults_.back().code = ErrorCode::unsupported;
    add_fixed("version_0", "version at offset 8: expected 1 to 2, found 0",
              [](Bytes& object) { put(object, 8, uint16_t{0}); });
  }

  void cut() {
    add_cut("cut_in_prefix", "truncated: a header has at least 236 bytes, found 20", 20);
    add_cut("cut_in_header", "truncated: its header has", at_.row_keys + 3);
    add_cut("cut_in_index", "truncated: its header has", at_.pictures + 60);
    add_cut("cut_after_header", "object size", at_.payload);
    add_cut("cut_in_payload", "object size", (at_.payload + int8_.size()) / 2);
    add_cut("cut_last_byte", "object size", int8_.size() - 1);
    Bytes longer = int8_;
    longer.push_back(std::byte{0});
    add("trailing_byte", "object size", longer);
  }

  void flip_each_section() {
    add_flipped("flip_fixed_part", "header_checksum", format::kTokensAt);
    add_flipped("flip_phase_steps", "header_checksum", at_.phase_steps);
    add_flipped("flip_row_keys", "header_checksum", at_.row_keys + 9);
    add_flipped("flip_steps", "header_checksum", at_.steps + 1);
    add_flipped("flip_row_offsets", "header_checksum", at_.row_offsets + 2);
    add_flipped("flip_sinks", "header_checksum", at_.sinks + 5);
    add_flipped("flip_escapes", "header_checksum", at_.escapes + 12);
    add_flipped("flip_index", "header_checksum", at_.pictures + 21);
    add_flipped("flip_header_checksum", "header_checksum", at_.checksum + 7);
    add_flipped("flip_first_payload_byte", "picture 0", at_.payload);
    add_flipped("flip_last_payload_byte", "picture 1", int8_.size() - 1);
    Bytes low_bits = exact_;
    flip(low_bits, low_bits.size() - 1);
    add("flip_low_bits", "picture 3", low_bits);
  }

  void claim_wrong_fields() {
    add_fixed("claims_100_gb", "decoded size (tokens, shape) at offset 124", [](Bytes& object) {
      put(object, format::kTokensAt, uint32_t{8192});
      put(object, format::kLayersAt, uint32_t{80});
      put(object, format::kKvHeadsAt, uint32_t{160});
      put(object, format::kKeyDimAt, uint32_t{256});
      put(object, format::kValueDimAt, uint32_t{256});
    });
    struct Field {
      const char *name, *message;
      size_t offset;
      uint64_t value;
      size_t bytes;
    };
    const Field fields[] = {
        {"tier_unknown", "tier at offset 10", 10, 9, 2},
        {"header_bytes_short", "header_bytes at offset 12", 12, 10, 4},
        {"object_bytes_huge", "object_bytes at offset 16", 16, uint64_t{1} << 40, 8},
        {"position_overflow", "first_token at offset 120", 120, UINT32_MAX, 4},
        {"tokens_zero", "tokens at offset 124", 124, 0, 4},
        {"tokens_many", "tokens at offset 124", 124, 8193, 4},
        {"layers_zero", "layers at offset 128", 128, 0, 4},
        {"key_dim_zero", "key_dim at offset 136", 136, 0, 4},
        {"dtype_unknown", "dtype at offset 144", 144, 4, 2},
        {"rope_style_unknown", "rope_style at offset 146", 146, 3, 1},
        {"reserved_set", "group_count at offset 172", 172, 1, 4},
        {"reserved_170", "reserved at offset 170", 170, 1, 2},
        {"basis_in_int8", "basis at offset 147", 147, 1, 1},
        {"rotary_dims_odd", "rotary_dims at offset 148", 148, 15, 4},
        {"sink_tokens_many", "sink_tokens at offset 152", 152, 41, 4},
        {"picture_height_wrong", "max_picture_height at offset 156", 156, 100, 4},
        {"picture_count_wrong", "picture_count at offset 160", 160, 3, 4},
        {"escape_count_huge", "header_bytes at offset 12", 164, UINT32_MAX, 4},
        {"symbol_bits_in_int8", "symbol_mantissa_bits of K at offset 168", 168, 1, 1},
    };
    for (const Field& field : fields) {
      add_fixed(field.name, field.message, [&](Bytes& object) {
        std::memcpy(object.data() + field.offset, &field.value, field.bytes);
      });
    }
    Bytes object = exact_;
    put(object, format::kSymbolBitsAt, uint8_t{4});
    fix_header(object, load_le<uint32_t>(&exact_[format::kHeaderBytesAt]));
    add("symbol_bits_many", "symbol_mantissa_bits of K at offset 168", object);
  }

  void break_arrays() {
    add_fixed("step_nan", "steps[K][0]", [&](Bytes& object) {
      put(object, at_.steps, std::numeric_limits<float>::quiet_NaN());
    });
    add_fixed("step_zero", "steps[V][1]",
              [&](Bytes& object) { put(object, at_.row_offsets - 4, 0.0f); });
    add_fixed("step_negative", "steps[K][1]",
              [&](Bytes& object) { put(object, at_.steps + 4, -1.0f); });
    const size_t first = at_.escapes, second = first + format::kEscapeBytes;
    add_fixed("escapes_out_of_order", "escapes[1].position", [&](Bytes& object) {
      std::swap_ranges(&object[first], &object[second], &object[second]);
    });
    add_fixed("escape_twice", "escapes[1].position", [&](Bytes& object) {
      std::memcpy(&object[second], &object[first], format::kEscapeBytes);
    });
    add_fixed("escape_not_needed", "escapes[0].code",
              [&](Bytes& object) { put(object, first + 12, int32_t{127}); });
    add_fixed("escape_of_sink", "escapes[0].token",
              [&](Bytes& object) { put(object, first + 8, uint32_t{0}); });
    add_fixed("escape_row_outside", "escapes[0].row",
              [&](Bytes& object) { put(object, first + 4, header_.rows(KvKind::key)); });
  }

  void break_pictures() {
    const size_t first = at_.pictures, second = first + format::kPictureBytes;
    const Picture& picture = header_.pictures[1];
    add_fixed("pictures_overlap", "pictures[1].offset",
              [&](Bytes& object) { put(object, second + 20, header_.pictures[0].offset); });
    add_fixed("pictures_gap", "pictures[1].offset",
              [&](Bytes& object) { put(object, second + 20, picture.offset + 1); });
    add_fixed("picture_beyond_end", "pictures[1].bytes",
              [&](Bytes& object) { put(object, second + 28, picture.bytes + 1); });
    add_fixed("picture_short_of_end", "object_bytes at offset 16",
              [&](Bytes& object) { put(object, second + 28, picture.bytes - 1); });
    add_fixed("picture_empty", "pictures[0].bytes",
              [&](Bytes& object) { put(object, first + 28, uint64_t{0}); });
    add_fixed("picture_kind_wrong", "pictures[0].kind",
              [&](Bytes& object) { put(object, first, uint8_t{1}); });
    add_fixed("picture_coding_unknown", "pictures[0].coding",
              [&](Bytes& object) { put(object, first + 2, uint8_t{3}); });
    add_fixed("picture_width_wrong", "pictures[0].width",
              [&](Bytes& object) { put(object, first + 12, picture.width + 8); });
    add_fixed("picture_rows_wrong", "pictures[1].rows",
              [&](Bytes& object) { put(object, second + 8, picture.rows - 1); });
    add_fixed("content_checksum_wrong", "picture 0",
              [&](Bytes& object) { flip(object, first + 44); });
    add_fixed("payload_is_noise", "picture 1", [&](Bytes& object) {
      for (size_t i = 0; i < picture.bytes; ++i)
        object[picture.offset + i] = static_cast<std::byte>(i * 151 + 7);
      put(object, second + 36, checksum64(std::span(object).subspan(picture.offset)));
    });
    add_fixed("payload_is_zeros", "picture 1", [&](Bytes& object) {
      for (size_t i = 0; i < picture.bytes; ++i) object[picture.offset + i] = std::byte{0};
      put(object, second + 36, checksum64(std::span(object).subspan(picture.offset)));
    });
  }

  void ask_for_another() {
    auto ask = [&](const char* name, const char* message, auto change) {
      add(name, message, int8_);
      faults_.back().foreign = true;
      faults_.back().expected = header_.id;
      change(faults_.back().expected);
    };
    ask("foreign_namespace", "namespace: expected 22",
        [](ChunkId& id) { id.ns.bytes[0] = std::byte{0x22}; });
    ask("foreign_key", "key: expected 22", [](ChunkId& id) { id.key.bytes[0] = std::byte{0x22}; });
    ask("foreign_position", "first token: expected 256, found 0",
        [](ChunkId& id) { id.first_token = 256; });
  }

  const Bytes int8_, exact_;
  const Header header_;
  const Sections at_;
  std::vector<GoldenFault> faults_;
};

}  // namespace

std::vector<GoldenFault> golden_faults(const std::string& folder) {
  std::vector<GoldenFault> faults = FaultMaker(folder).make();
  for (GoldenFault& fault : calibrated_faults(folder)) faults.push_back(std::move(fault));
  return faults;
}

}  // namespace kvcodec
