// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/result.h"

namespace kvcodec {

// A 256-bit key, wiped when it goes away. Its id tells keys apart and says nothing else of them.
class AeadKey {
 public:
  static constexpr size_t kBytes = 32, kIdBytes = 8;
  using Id = std::array<std::byte, kIdBytes>;

  explicit AeadKey(const std::array<std::byte, kBytes>& bytes);
  AeadKey(const AeadKey&) = default;
  AeadKey& operator=(const AeadKey&) = default;
  ~AeadKey();
  const std::array<std::byte, kBytes>& bytes() const { return bytes_; }
  const Id& id() const { return id_; }

 private:
  std::array<std::byte, kBytes> bytes_;
  Id id_;
};
std::string to_hex(const AeadKey::Id& id);

// The keys of a store: the first seals, each of them opens what it sealed. `text` has one key of 64
// hexadecimal digits a line; blank lines and those from '#' on are skipped. No error repeats what
// stands there. `where` names the source.
Result<std::vector<AeadKey>> parse_keys(std::string_view text, std::string_view where);
// Of a file, or where `path` is empty of the file that KVCODEC_KEY_FILE names, or of KVCODEC_KEY
// itself; none where nothing says. A file that others than its owner may read is refused.
Result<std::vector<AeadKey>> load_keys(const std::string& path);

}  // namespace kvcodec
