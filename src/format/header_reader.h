// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "format/header_fields.h"

namespace kvcodec::format {

template <typename Expected, typename Found>
Error bad_field(std::string_view field, size_t offset, const Expected& expected,
                const Found& found) {
  return make_error(ErrorCode::corrupt, "header field {} at offset {}: expected {}, found {}",
                    field, offset, expected, found);
}

inline std::string range_text(uint64_t low, uint64_t high) {
  return fmt::format("{} to {}", low, high);
}

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
  Status check_identity_groups();
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

}  // namespace kvcodec::format
