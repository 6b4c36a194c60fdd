// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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
  // Calibrated: codes in the basis of a profile (kvcodec/profile.h), finest first; finite input
  // only.
  high = 3,
  balanced = 4,
  small = 5,
};
inline constexpr bool is_calibrated(Tier tier) { return tier >= Tier::high; }
// A tier keeps at least as much as every tier of a larger value.
inline constexpr bool at_least(Tier tier, Tier lowest) { return tier <= lowest; }
class Profile;

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
  // int8: keys are un-rotated by it; style none where it is unknown. Calibrated tiers: the
  // profile's is used; none, or equal to it (to 2^-40 of a turn a token).
  Rope rope;
  uint32_t sink_tokens = 4;            // not exact: positions below this are stored exactly
  uint32_t max_picture_height = 2048;  // multiple of 8 in [144, 8192]
  int threads = 0;                     // 0: all cores
  bool verify = true;                  // decode the object again before it is returned
  // Calibrated tiers: required, and borrowed during the call.
  const Profile* profile = nullptr;
  // Calibrated tiers: a chunk whose noise is above this many times what the profile expects at
  // `tier` is coded at the next finer tier until it is not, and at int8 where none is left. 0:
  // never.
  double noise_factor = 1.5;
};

// Encodes tokens `range` of `source` into one object (docs/format.md). Deterministic: equal input
// and options give equal bytes, whatever the number of threads; calibrated tiers on one kind of
// processor, as their products of matrices round in its order. The object's tier is options.tier,
// or a finer one (noise_factor). Requires 1 <= range.count and the range inside the geometry.
// invalid_argument names a non-finite value for any tier but exact.
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

// Calibrated tiers: how far a group of layers is from the exact values, measured at encoding over
// the tokens that are not sinks, under the profile's metric.
struct GroupDistortion {
  KvKind kind = KvKind::key;
  uint32_t first_layer = 0, layers = 0;
  uint32_t components = 0, live_rows = 0;  // of the basis, and how many have codes other than zero
  float step = 0;
  float noise = 0;           // mean square of the error, a token and channel
  float relative_error = 0;  // root of the error's energy over that of the centred values
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
  std::vector<GroupDistortion> distortions;  // calibrated tiers
  uint64_t values() const;                   // elements the chunk restores
  double bits_per_value() const;             // of the whole object
};

// Reads and checks a header. `bytes` may be the beginning of an object: where it is too short,
// the error is corrupt and names the bytes needed.
Result<ChunkInfo> read_chunk_info(std::span<const std::byte> bytes, const Limits& limits = {});

struct DecodeOptions {
  const ChunkId* expected = nullptr;    // corrupt where the object is not this one
  const Tier* expected_tier = nullptr;  // corrupt where it is of another tier
  const Tier* lowest_tier = nullptr;    // fidelity floor: corrupt where it is of a lower tier
  // Calibrated tiers: required but for an identity profile's chunks; borrowed during the call.
  // invalid_argument where it is not the one that the object names.
  const Profile* profile = nullptr;
  // Position of the chunk's first token in the sequence it is restored into, where that is another
  // than it was encoded from: keys are rotated for it. Not for tier exact, whose keys are as they
  // were, nor for chunks with sinks or without a rope: unsupported.
  std::optional<uint32_t> position;
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
