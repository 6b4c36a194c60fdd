// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kvcodec/result.h"

namespace kvcodec {

// What the key of an object holds: a header, then the object where it is small, see docs/stores.md.
struct RedisManifest {
  static constexpr size_t kBytes = 48;
  static constexpr size_t kInlineBytes = size_t{64} << 10;  // larger objects are cut into parts
  static constexpr uint64_t kLeastPart = 4096, kMostPart = uint64_t{256} << 20,
                            kMostParts = 1 << 20;
  std::array<std::byte, 16> version{};  // random: names the parts of this one put
  uint64_t bytes = 0;
  uint32_t part_bytes = 0;  // 0: the object follows the header
  uint64_t put_ms = 0;      // since 1970, the writer's clock

  uint64_t parts() const { return part_bytes == 0 ? 0 : (bytes + part_bytes - 1) / part_bytes; }
  std::string serialize() const;
  // `value` holds the header, and all of the rest only where `whole`.
  static Result<RedisManifest> parse(std::string_view name, std::string_view value, bool whole);
};

}  // namespace kvcodec
