// SPDX-License-Identifier: Apache-2.0
#include "hevc/bit_writer.h"

#include <bit>
#include <cstring>

namespace kvcodec::hevc {
namespace {

// Calls found(i) for every i where bytes[i - 2] and bytes[i - 1] are zero and not both were used
// by an earlier i that found() returned true for. Stops at the end.
template <typename Found>
void for_each_after_two_zeros(std::span<const uint8_t> bytes, Found found) {
  size_t i = 0;
  while (i + 2 < bytes.size()) {
    const void* zero = std::memchr(bytes.data() + i, 0, bytes.size() - i - 2);
    if (zero == nullptr) return;
    i = static_cast<const uint8_t*>(zero) - bytes.data();
    if (bytes[i + 1] != 0) {
      i += 2;
    } else if (found(i + 2)) {
      i += 2;
    } else {
      i += 1;
    }
  }
}

}  // namespace

void BitWriter::put(uint32_t value, int bits) {
  for (int i = bits - 1; i >= 0; --i) {
    partial_ = partial_ << 1 | (value >> i & 1);
    if (++partial_bits_ == 8) {
      bytes_.push_back(static_cast<uint8_t>(partial_));
      partial_ = 0;
      partial_bits_ = 0;
    }
  }
}

void BitWriter::put_ue(uint32_t value) {
  const int length = std::bit_width(value + 1);
  put(0, length - 1);
  put(value + 1, length);
}

void BitWriter::put_se(int32_t value) {
  put_ue(value > 0 ? 2 * static_cast<uint32_t>(value) - 1 : 2 * static_cast<uint32_t>(-value));
}

void BitWriter::put_trailing_bits() {
  put(1, 1);
  while (partial_bits_ != 0) put(0, 1);
}

void insert_emulation_prevention(std::vector<uint8_t>& bytes, size_t from) {
  size_t inserts = 0;
  const size_t end = bytes.size();
  const std::span<const uint8_t> tail(bytes.data() + from, end - from);
  for_each_after_two_zeros(tail, [&](size_t i) {
    const bool insert = tail[i] <= 3;
    inserts += insert ? 1 : 0;
    return insert;
  });
  if (inserts == 0) return;

  // Move everything to its last place, then copy forwards: the copy never overtakes its source.
  bytes.resize(end + inserts);
  uint8_t* to = bytes.data() + from;
  const uint8_t* source = to + inserts;
  std::memmove(to + inserts, to, end - from);
  size_t copied = 0;
  for_each_after_two_zeros({source, end - from}, [&](size_t i) {
    if (source[i] > 3) return false;
    std::memmove(to, source + copied, i - copied);
    to += i - copied;
    *to++ = 3;
    copied = i;
    return true;
  });
}

std::optional<size_t> find_forbidden_bytes(std::span<const uint8_t> nal_unit) {
  std::optional<size_t> forbidden;
  for_each_after_two_zeros(nal_unit, [&](size_t i) {
    const bool prevention = nal_unit[i] == 3 && (i + 1 == nal_unit.size() || nal_unit[i + 1] <= 3);
    if (nal_unit[i] <= 3 && !prevention && !forbidden) forbidden = i - 2;
    return false;
  });
  if (!forbidden && !nal_unit.empty() && nal_unit.back() == 0) forbidden = nal_unit.size() - 1;
  return forbidden;
}

}  // namespace kvcodec::hevc
