// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace kvcodec {

static_assert(std::endian::native == std::endian::little, "big-endian hosts need byte swaps here");

template <typename T>
T load_le(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Appends little-endian values.
class ByteWriter {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T>
  void put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  // Overwrites what is already there.
  template <typename T>
  void patch(size_t at, T value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  size_t size() const { return bytes_.size(); }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Reads little-endian values and never beyond the end: the first failed read makes every later
// one fail too, returning zeros. Borrows the bytes.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  T get() {
    if (!take(sizeof(T))) return T{};
    return load_le<T>(bytes_.data() + at_ - sizeof(T));
  }
  std::span<const std::byte> get_bytes(size_t n) {
    if (!take(n)) return {};
    return bytes_.subspan(at_ - n, n);
  }
  bool ok() const { return ok_; }
  size_t offset() const { return at_; }
  size_t remaining() const { return bytes_.size() - at_; }

 private:
  bool take(size_t n) {
    if (!ok_ || n > bytes_.size() - at_) return ok_ = false;
    at_ += n;
    return true;
  }
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace kvcodec
