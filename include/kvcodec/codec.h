// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/key.h"
#include "kvcodec/kv.h"
#include "kvcodec/result.h"

namespace kvcodec {

// How much of a cache is kept. Values are part of the format; append only.
enum class Tier : uint16_t {
  exact = 1,  // every bit, NaN payloads and signed zeros included
  int8 = 2,   // 8-bit codes of un-rotated, centred values; finite input only
};
const char* tier_name(Tier tier);
Result<Tier> tier_from_name(std::string_view name);

// What a chunk is a part of, checked on restore.
struct ChunkId {
  Digest ns;
  Digest key;
  uint32_t first_token = 0;  // position of its first token in the sequence
  bool operator==(const ChunkId&) const = default;
};

// What a reader accepts before it allocates; a header beyond them is corrupt.
struct Limits {
  uint32_t max_tokens = 1u << 16;
  uint64_t max_decoded_bytes = uint64_t{4} << 30;
  uint64_t max_object_bytes = uint64_t{4} << 30;
};

struct EncodeOptions {
  Tier tier = Tier::exact;
  Rope rope;                 // int8: keys are un-rotated by it; style none where it is unknown
  uint32_t sink_tokens = 4;  // int8: positions below this are stored exactly
  uint32_t max_picture_height = 2048;  // multiple of 8 in [144, 8192]
  int threads = 0;                     // 0: all cores
  bool verify = true;                  // decode the object again before it is returned
};

// Encodes tokens `range` of `source` into one object (docs/format.md). Deterministic: equal input
// and options give equal bytes, whatever the number of threads. Requires 1 <= range.count and the
// range inside the geometry. invalid_argument names a non-finite value for tier int8.
Result<std::vector<std::byte>> encode_chunk(const KvSource& source, TokenRange range,
                                            const ChunkId& id, const EncodeOptions& options);

// One stored picture or raw plane, for people and for range reads.
struct PictureInfo {
  KvKind kind = KvKind::key;
  uint32_t plane = 0;                // exact: which bits; int8: 0
  uint32_t first_row = 0, rows = 0;  // channels of the layout, over all layers
  uint32_t width = 0, height = 0;    // samples, as stored
  std::string coding;                // "raw", "hevc", ...
  uint64_t offset = 0, bytes = 0;    // in the object
};

struct ChunkInfo {
  uint32_t format_version = 0;
  Tier tier = Tier::exact;
  ChunkId id;
  Digest profile;
  KvShape shape;
  Rope rope;
  uint32_t tokens = 0;
  uint32_t sink_tokens = 0;
  uint64_t escapes = 0;
  uint64_t header_bytes = 0, object_bytes = 0;
  std::vector<PictureInfo> pictures;
  uint64_t values() const;        // elements the chunk restores
  double bits_per_value() const;  // of the whole object
};

// Reads and checks a header. `bytes` may be the beginning of an object: where it is too short,
// the error is corrupt and names the bytes needed.
Result<ChunkInfo> read_chunk_info(std::span<const std::byte> bytes, const Limits& limits = {});

struct DecodeOptions {
  const ChunkId* expected = nullptr;    // corrupt where the object is not this one
  const Tier* expected_tier = nullptr;  // corrupt where it is of another tier
  Limits limits;
  int threads = 0;  // 0: all cores
};

// Restores an object into tokens [first_token, first_token + chunk tokens) of `target`. Everything
// is checked first: on any error nothing was written. corrupt for bytes that are wrong,
// invalid_argument where the target's shape is not the object's. Thread-safe.
Status decode_chunk(std::span<const std::byte> object, const KvTarget& target, uint32_t first_token,
                    const DecodeOptions& options = {});

// All checks of decode_chunk, decoding included, into nothing.
Status verify_chunk(std::span<const std::byte> object, const DecodeOptions& options = {});

}  // namespace kvcodec
