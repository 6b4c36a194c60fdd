// SPDX-License-Identifier: Apache-2.0
#include "codec/encode_request.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "format/header_fields.h"
#include "kvcodec/profile.h"

namespace kvcodec {
namespace {

template <typename Expected, typename Found>
Error bad_argument(const char* field, const Expected& expected, const Found& found) {
  return make_error(ErrorCode::invalid_argument, "{}: expected {}, found {}", field, expected,
                    found);
}

Status check_between(const char* field, uint64_t low, uint64_t high, uint64_t found) {
  if (found >= low && found <= high) return ok_status();
  return bad_argument(field, fmt::format("{} to {}", low, high), found);
}

Status check_shape(const KvShape& shape) {
  KVCODEC_CHECK(check_between("layers", 1, format::kMaxLayers, shape.layers));
  KVCODEC_CHECK(check_between("kv_heads", 1, format::kMaxHeads, shape.kv_heads));
  KVCODEC_CHECK(check_between("key_dim", 1, format::kMaxHeadDim, shape.key_dim));
  KVCODEC_CHECK(check_between("value_dim", 0, format::kMaxHeadDim, shape.value_dim));
  for (KvKind kind : kKvKinds) {
    const uint64_t rows = uint64_t{shape.layers} * shape.kv_heads * shape.head_dim(kind);
    KVCODEC_CHECK(check_between("layers * kv_heads * head dim", 0, format::kMaxRows, rows));
  }
  if (shape.dtype != DType::f16 && shape.dtype != DType::bf16 && shape.dtype != DType::f32)
    return bad_argument("dtype", "f16, bf16 or f32", static_cast<int>(shape.dtype));
  return ok_status();
}

Status check_rope(const Rope& rope, uint32_t key_dim) {
  if (rope.style == Rope::Style::none) return ok_status();
  if (rope.style != Rope::Style::interleaved && rope.style != Rope::Style::neox)
    return bad_argument("rope style", "0, 1 or 2", static_cast<int>(rope.style));
  if (rope.rotary_dims == 0 || rope.rotary_dims % 2 != 0 || rope.rotary_dims > key_dim) {
    return bad_argument("rotary_dims", fmt::format("an even number from 2 to key_dim {}", key_dim),
                        rope.rotary_dims);
  }
  if (rope.phase_steps.size() != rope.rotary_dims / 2)
    return bad_argument("rope phase steps", rope.rotary_dims / 2, rope.phase_steps.size());
  return ok_status();
}

// The same but for how frequencies were rounded: 2^-40 of a turn a token.
bool same_rotation(const Rope& a, const Rope& b) {
  if (a.style != b.style || a.rotary_dims != b.rotary_dims) return false;
  constexpr uint64_t kNear = uint64_t{1} << 24;
  for (size_t i = 0; i < a.phase_steps.size(); ++i)
    if (a.phase_steps[i] - b.phase_steps[i] + kNear > 2 * kNear) return false;
  return true;
}

Status check_profile(const KvShape& shape, const EncodeOptions& options) {
  if (options.profile == nullptr) {
    return make_error(ErrorCode::invalid_argument, "tier {} needs a profile, none was given",
                      tier_name(options.tier));
  }
  KVCODEC_CHECK(options.profile->check_shape(shape));
  if (!(options.noise_factor >= 0) || !std::isfinite(options.noise_factor))
    return bad_argument("noise_factor", "a finite number, at least 0", options.noise_factor);
  if (options.rope.style == Rope::Style::none ||
      same_rotation(options.rope, options.profile->rope()))
    return ok_status();
  return make_error(ErrorCode::invalid_argument,
                    "the profile is of another model: its keys were rotated in another way");
}

// One group of the profile.
format::BasisGroup start_group(const ProfileGroup& from) {
  format::BasisGroup group;
  group.kind = from.kind;
  group.first_layer = from.first_layer;
  group.layers = from.layers;
  group.components = from.components;
  return group;
}

void start_identity_groups(format::Header& header) {
  for (KvKind kind : kKvKinds) {
    const uint32_t channels = header.shape.channels(kind);
    for (const format::RowGroup& rows :
         format::row_groups(header.shape, kind, header.max_picture_height)) {
      format::BasisGroup group;
      group.kind = kind;
      group.first_layer = rows.first_row / channels;
      group.layers = rows.rows / channels;
      group.components = group.live_rows = rows.rows;
      header.groups.push_back(group);
    }
  }
}

}  // namespace

Status check_request(const KvSource& source, TokenRange range, const ChunkId& id,
                     const EncodeOptions& options) {
  if (source.geometry == nullptr)
    return make_error(ErrorCode::invalid_argument, "the source has no geometry");
  const KvGeometry& geometry = *source.geometry;
  KVCODEC_CHECK(check_shape(geometry.shape));
  KVCODEC_CHECK(check_between("tokens of the chunk", 1, format::kMaxChunkTokens, range.count));
  KVCODEC_CHECK(check_between("end of the token range", 0, geometry.tokens,
                              uint64_t{range.first} + range.count));
  KVCODEC_CHECK(check_between("first token", 0, UINT32_MAX - range.count, id.first_token));
  KVCODEC_CHECK(geometry.validate(source.memory.size()));
  KVCODEC_CHECK(check_between("max_picture_height", format::kMinPictureHeight,
                              format::kMaxPictureHeight, options.max_picture_height));
  if (options.max_picture_height % 8 != 0)
    return bad_argument("max_picture_height", "a multiple of 8", options.max_picture_height);
  if (options.tier < Tier::exact || options.tier > Tier::small)
    return bad_argument("tier", "exact, int8, high, balanced or small",
                        static_cast<int>(options.tier));
  KVCODEC_CHECK(check_rope(options.rope, geometry.shape.key_dim));
  return is_calibrated(options.tier) ? check_profile(geometry.shape, options) : ok_status();
}

format::Header start_header(const KvShape& shape, uint32_t tokens, const ChunkId& id,
                            const EncodeOptions& options, const EncoderTuning& tuning) {
  format::Header header;
  header.tier = options.tier;
  header.id = id;
  header.tokens = tokens;
  header.shape = shape;
  header.max_picture_height = options.max_picture_height;
  if (options.rope.style != Rope::Style::none) header.rope = options.rope;
  if (header.tier != Tier::exact) {
    if (options.sink_tokens > id.first_token)
      header.sink_tokens = std::min(options.sink_tokens - id.first_token, tokens);
    header.sinks.resize(shape.token_bytes() * header.sink_tokens);
  }
  if (is_calibrated(header.tier)) {
    header.profile = options.profile->digest();
    header.rope = options.profile->rope();
    if (!options.profile->is_identity()) {
      for (const ProfileGroup& group : options.profile->groups())
        header.groups.push_back(start_group(group));
      return header;  // the pictures follow from the codes
    }
    header.basis = format::Basis::identity;
    start_identity_groups(header);
  }
  for (KvKind kind : kKvKinds) {
    const auto i = static_cast<size_t>(kind);
    const size_t rows = header.rows(kind);
    header.row_keys[i].resize(rows);
    if (rows == 0) continue;
    if (header.tier == Tier::exact && shape.dtype == DType::f16)
      header.symbol_mantissa_bits[i] = tuning.symbol_mantissa_bits[i];
    if (header.has_layer_steps()) {
      header.steps[i].resize(shape.layers);
      header.row_offsets[i].resize(rows);
    }
  }
  header.pictures = format::layout_pictures(header);
  return header;
}

}  // namespace kvcodec
