// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kvcodec::hevc {

// Writes the fixed and Exp-Golomb codes of H.265 7.2 and 9.2, most significant bit first.
class BitWriter {
 public:
  void put(uint32_t value, int bits);  // u(n), n in [0, 32]
  void put_flag(bool value) { put(value ? 1 : 0, 1); }
  void put_ue(uint32_t value);  // ue(v), value below 2^32 - 1
  void put_se(int32_t value);   // se(v)
  // A one, then zeros up to the next byte: rbsp_trailing_bits and byte_alignment
  // (7.3.2.11, 7.3.2.12).
  void put_trailing_bits();
  // Requires a multiple of 8 bits written.
  std::vector<uint8_t> take() { return std::exchange(bytes_, {}); }

 private:
  std::vector<uint8_t> bytes_;
  uint32_t partial_ = 0;  // the bits of an unfinished byte
  int partial_bits_ = 0;
};

// Inserts the emulation_prevention_three_byte of 7.4.2 into bytes[from, end), in place.
void insert_emulation_prevention(std::vector<uint8_t>& bytes, size_t from);

// Offset of the first three bytes that no NAL unit may hold (7.4.2): a start code or its like, or
// an emulation_prevention_three_byte that prevents nothing. A NAL unit must not end in a zero byte
// either: then the offset of that byte.
std::optional<size_t> find_forbidden_bytes(std::span<const uint8_t> nal_unit);

}  // namespace kvcodec::hevc
