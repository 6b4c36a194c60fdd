// SPDX-License-Identifier: Apache-2.0
#include "codec/chunk_decoder.h"

#include "base/error.h"
#include "base/parallel.h"
#include "codec/exact_tier.h"
#include "codec/int8_tier.h"
#include "codec/picture_coder.h"

namespace kvcodec {
namespace {

Status check_identity(const ChunkId& expected, const ChunkId& found) {
  const auto wrong = [](const char* field, const auto& want, const auto& have) {
    return make_error(ErrorCode::corrupt, "not the expected chunk: {}: expected {}, found {}",
                      field, want, have);
  };
  if (expected.ns != found.ns) return wrong("namespace", to_hex(expected.ns), to_hex(found.ns));
  if (expected.key != found.key) return wrong("key", to_hex(expected.key), to_hex(found.key));
  if (expected.first_token != found.first_token)
    return wrong("first token", expected.first_token, found.first_token);
  return ok_status();
}

// Small chunks have pictures much larger than their content; they count against the limit too.
Status check_picture_sizes(const format::Header& header, const Limits& limits) {
  uint64_t samples = 0;
  for (const format::Picture& picture : header.pictures)
    samples += uint64_t{picture.width} * picture.height;
  if (samples <= limits.max_decoded_bytes) return ok_status();
  return make_error(ErrorCode::corrupt, "the pictures have {} samples, the limit is {}", samples,
                    limits.max_decoded_bytes);
}

Status check_target(const format::Header& header, const KvGeometry* target, uint64_t memory_bytes,
                    uint32_t first_token) {
  if (target == nullptr)
    return make_error(ErrorCode::invalid_argument, "the target has no geometry");
  const KvGeometry& geometry = *target;
  const auto wrong = [](const char* field, const auto& object, const auto& have) {
    return make_error(ErrorCode::invalid_argument,
                      "shape: {} of the object is {}, of the target {}", field, object, have);
  };
  const KvShape &object = header.shape, &shape = geometry.shape;
  if (object.dtype != shape.dtype)
    return wrong("dtype", dtype_name(object.dtype), dtype_name(shape.dtype));
  if (object.layers != shape.layers) return wrong("layers", object.layers, shape.layers);
  if (object.kv_heads != shape.kv_heads) return wrong("kv_heads", object.kv_heads, shape.kv_heads);
  if (object.key_dim != shape.key_dim) return wrong("key_dim", object.key_dim, shape.key_dim);
  if (object.value_dim != shape.value_dim)
    return wrong("value_dim", object.value_dim, shape.value_dim);
  if (uint64_t{first_token} + header.tokens > geometry.tokens) {
    return make_error(ErrorCode::invalid_argument,
                      "tokens {} to {} of the object do not fit: the target has {}", first_token,
                      uint64_t{first_token} + header.tokens, geometry.tokens);
  }
  return geometry.validate(memory_bytes);
}

// The object names its profile, so one of another digest is the caller's mistake; an object that
// names this one must have its groups.
Status check_profile(const format::Header& header, const Profile& profile) {
  if (header.profile != profile.digest()) {
    return make_error(ErrorCode::invalid_argument,
                      "the object needs another profile: expected {}, given {}",
                      to_hex(header.profile), to_hex(profile.digest()));
  }
  const auto wrong = [](const char* field, const auto& expected, const auto& found) {
    return make_error(ErrorCode::corrupt,
                      "the object is not of its profile: {}: expected {}, found {}", field,
                      expected, found);
  };
  if (!profile.check_shape(header.shape).ok()) return wrong("shape", "the profile's", "another");
  if (profile.is_identity() != (header.basis == format::Basis::identity))
    return wrong("basis", "the profile's", "another");
  if (header.rope != profile.rope()) return wrong("rope", "the profile's", "another");
  if (profile.is_identity()) return ok_status();
  if (header.groups.size() != profile.groups().size())
    return wrong("groups", profile.groups().size(), header.groups.size());
  for (size_t g = 0; g < header.groups.size(); ++g) {
    const format::BasisGroup& have = header.groups[g];
    const ProfileGroup& want = profile.groups()[g];
    if (have.kind != want.kind || have.layers != want.layers ||
        have.components != want.components) {
      return wrong("group",
                   fmt::format("{} of {} layers, {} components", kv_kind_name(want.kind),
                               want.layers, want.components),
                   fmt::format("{} of {} layers, {} components", kv_kind_name(have.kind),
                               have.layers, have.components));
    }
  }
  return ok_status();
}

// Whether the chunk may be restored as if its first token had this position.
Status check_position(const format::Header& header, uint32_t position) {
  if (position > UINT32_MAX - header.tokens) {
    return make_error(ErrorCode::invalid_argument, "position: expected at most {}, found {}",
                      UINT32_MAX - header.tokens, position);
  }
  if (position == header.id.first_token) return ok_status();
  const char* why = nullptr;
  if (header.tier == Tier::exact)
    why = "tier exact keeps keys as they were rotated";
  else if (header.rope.style == Rope::Style::none)
    why = "it does not know how its keys are rotated";
  else if (header.sink_tokens > 0)
    why = "it begins its sequence, and keeps sinks as they were rotated";
  if (why == nullptr) return ok_status();
  return make_error(ErrorCode::unsupported, "the chunk of position {} cannot be restored at {}: {}",
                    header.id.first_token, position, why);
}

}  // namespace

Result<format::Header> read_whole(std::span<const std::byte> object, const DecodeOptions& options) {
  KVCODEC_TRY(format::Header header, format::read_header(object, options.limits));
  if (header.object_bytes != object.size()) {
    return make_error(ErrorCode::corrupt, "object size: expected {} bytes, found {}",
                      header.object_bytes, object.size());
  }
  KVCODEC_CHECK(check_picture_sizes(header, options.limits));
  if (options.expected != nullptr) KVCODEC_CHECK(check_identity(*options.expected, header.id));
  if (options.expected_tier != nullptr && *options.expected_tier != header.tier) {
    return make_error(ErrorCode::corrupt, "not the expected chunk: tier: expected {}, found {}",
                      tier_name(*options.expected_tier), tier_name(header.tier));
  }
  if (options.lowest_tier != nullptr && !at_least(header.tier, *options.lowest_tier)) {
    return make_error(ErrorCode::corrupt,
                      "not the expected chunk: tier: expected {} or finer, found {}",
                      tier_name(*options.lowest_tier), tier_name(header.tier));
  }
  return header;
}

namespace {

// All of a DecodedChunk but its pictures.
Result<DecodedChunk> plan_chunk(format::Header header, const DecodeOptions& options) {
  if (is_calibrated(header.tier) && options.profile != nullptr)
    KVCODEC_CHECK(check_profile(header, *options.profile));
  std::vector<GroupPlan> groups = plan_groups(header);
  std::vector<Panel> panels;
  if (header.has_basis()) panels = plan_panels(groups.size(), header.tokens);
  std::vector<PictureContent> contents(header.pictures.size());
  const Rope rope = header.tier == Tier::exact ? Rope{} : header.rope;
  transform::RotationTable turns(rope, options.position.value_or(header.id.first_token),
                                 header.tokens);
  return DecodedChunk{std::move(header), options.profile,     std::move(groups),
                      std::move(panels), std::move(contents), std::move(turns)};
}

}  // namespace

Result<DecodedChunk> decode_pictures(std::span<const std::byte> object, format::Header header,
                                     const DecodeOptions& options) {
  KVCODEC_TRY(DecodedChunk chunk, plan_chunk(std::move(header), options));
  PicturesToLoad pictures{&chunk.header, object, chunk.contents};
  load_pictures(std::span(&pictures, 1), options.threads);
  KVCODEC_CHECK(std::move(pictures.status));
  return chunk;
}

std::vector<Result<DecodedChunk>> decode_objects(std::span<const ObjectToDecode> objects,
                                                 DecodeOptions options) {
  std::vector<Result<DecodedChunk>> decoded;
  decoded.reserve(objects.size());  // what loads them points into it
  std::vector<PicturesToLoad> pictures;
  std::vector<size_t> index;
  for (const ObjectToDecode& object : objects) {
    options.expected = object.expected;
    options.profile = object.profile;
    decoded.push_back([&]() -> Result<DecodedChunk> {
      KVCODEC_TRY(format::Header header, read_whole(object.object, options));
      return plan_chunk(std::move(header), options);
    }());
    if (!decoded.back().ok()) continue;
    DecodedChunk& chunk = *decoded.back();
    pictures.push_back({&chunk.header, object.object, chunk.contents});
    index.push_back(decoded.size() - 1);
  }
  load_pictures(pictures, options.threads);
  for (size_t i = 0; i < pictures.size(); ++i)
    if (!pictures[i].status.ok()) decoded[index[i]] = std::move(pictures[i].status.error());
  return decoded;
}

size_t restore_units(const DecodedChunk& chunk) {
  return chunk.panels.empty() ? chunk.groups.size() : chunk.panels.size();
}

namespace {

struct Unit {
  const GroupPlan& plan;
  TokenRange tokens;
};
Unit unit_of(const DecodedChunk& chunk, size_t unit) {
  if (chunk.panels.empty()) return {chunk.groups[unit], {0, chunk.header.tokens}};
  return {chunk.groups[chunk.panels[unit].group], chunk.panels[unit].tokens};
}

}  // namespace

std::vector<std::byte> restore_unit(const DecodedChunk& chunk, size_t unit) {
  const format::Header& header = chunk.header;
  const auto [plan, tokens] = unit_of(chunk, unit);
  std::vector<std::byte> rows(size_t{plan.layers.count} * header.shape.channels(plan.kind) *
                              tokens.count * dtype_bytes(header.shape.dtype));
  if (header.tier == Tier::exact) {
    merge_group(plan, header, chunk.contents, rows.data());
  } else if (header.has_layer_steps()) {
    dequantise_group(plan, header, chunk.turns, chunk.contents, rows.data());
  } else {
    const CalibratedContext context{*chunk.profile, header, chunk.groups, chunk.turns};
    restore_panel(context, chunk.panels[unit], LiveSamples(plan, header, chunk.contents),
                  header.escapes, rows.data());
  }
  return rows;
}

Result<format::Header> check_request(std::span<const std::byte> object, const KvGeometry* target,
                                     uint64_t memory_bytes, uint32_t first_token,
                                     const DecodeOptions& options) {
  KVCODEC_TRY(format::Header header, read_whole(object, options));
  KVCODEC_CHECK(check_target(header, target, memory_bytes, first_token));
  if (options.position) KVCODEC_CHECK(check_position(header, *options.position));
  if (header.has_basis() && options.profile == nullptr) {
    return make_error(ErrorCode::invalid_argument,
                      "the object is of tier {} and needs profile {}, none was given",
                      tier_name(header.tier), to_hex(header.profile));
  }
  if (header.has_basis()) KVCODEC_CHECK(check_profile(header, *options.profile));
  return header;
}

namespace {

// Nothing can fail here.
void restore_chunk(const DecodedChunk& chunk, const KvTarget& target, uint32_t first_token,
                   int threads) {
  parallel_for(restore_units(chunk), threads, [&](size_t i, int) {
    const auto [plan, tokens] = unit_of(chunk, i);
    const std::vector<std::byte> rows = restore_unit(chunk, i);
    layout::scatter_rows(target, plan.kind, plan.layers, {first_token + tokens.first, tokens.count},
                         rows.data());
  });
}

}  // namespace

RestoredChunks decode_chunks(std::span<const ChunkToRestore> chunks, const KvTarget& target,
                             DecodeOptions options, const std::function<bool()>& go_on) {
  RestoredChunks restored;
  const DecodeOptions common = options;
  std::vector<DecodedChunk> decoded;
  decoded.reserve(chunks.size());  // what loads them points into it
  std::vector<PicturesToLoad> pictures;
  for (const ChunkToRestore& chunk : chunks) {
    options.expected = chunk.expected;
    const bool own_tier = chunk.expected_tier != nullptr || chunk.lowest_tier != nullptr;
    options.expected_tier = own_tier ? chunk.expected_tier : common.expected_tier;
    options.lowest_tier = own_tier ? chunk.lowest_tier : common.lowest_tier;
    auto next = [&]() -> Result<DecodedChunk> {
      KVCODEC_TRY(format::Header header,
                  check_request(chunk.object, target.geometry, target.memory.size(),
                                chunk.first_token, options));
      return plan_chunk(std::move(header), options);
    }();
    if (!next.ok()) {
      restored.status = std::move(next.error());
      break;
    }
    decoded.push_back(std::move(*next));
    pictures.push_back({&decoded.back().header, chunk.object, decoded.back().contents});
  }
  load_pictures(pictures, options.threads);
  for (size_t i = 0; i < decoded.size(); ++i) {
    if (!pictures[i].status.ok()) {
      restored.status = std::move(pictures[i].status);
      break;
    }
    restore_chunk(decoded[i], target, chunks[i].first_token, options.threads);
    ++restored.chunks;
    if (!go_on()) return {restored.chunks, ok_status()};
  }
  return restored;
}

Status decode_chunk(std::span<const std::byte> object, const KvTarget& target, uint32_t first_token,
                    const DecodeOptions& options) {
  const ChunkToRestore chunk{object, first_token, options.expected};
  return decode_chunks(std::span(&chunk, 1), target, options, [] { return true; }).status;
}

Status verify_chunk(std::span<const std::byte> object, const DecodeOptions& options) {
  KVCODEC_TRY(format::Header header, read_whole(object, options));
  KVCODEC_CHECK(decode_pictures(object, std::move(header), options));
  return ok_status();
}

}  // namespace kvcodec
