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

Status check_target(const format::Header& header, const KvTarget& target, uint32_t first_token) {
  if (target.geometry == nullptr)
    return make_error(ErrorCode::invalid_argument, "the target has no geometry");
  const KvGeometry& geometry = *target.geometry;
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
  return geometry.validate(target.memory.size());
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
  return header;
}

Result<DecodedChunk> decode_pictures(std::span<const std::byte> object, format::Header header,
                                     int threads) {
  std::vector<GroupPlan> groups = plan_groups(header);
  std::vector<PictureContent> contents(header.pictures.size());
  KVCODEC_CHECK(load_pictures(header, object, threads, contents));
  const Rope rope = header.tier == Tier::int8 ? header.rope : Rope{};
  transform::RotationTable turns(rope, header.id.first_token, header.tokens);
  return DecodedChunk{std::move(header), std::move(groups), std::move(contents), std::move(turns)};
}

std::vector<std::byte> restore_group(const DecodedChunk& chunk, const GroupPlan& plan) {
  const format::Header& header = chunk.header;
  std::vector<std::byte> rows(size_t{plan.rows.rows} * header.tokens *
                              dtype_bytes(header.shape.dtype));
  if (header.tier == Tier::exact)
    merge_group(plan, header, chunk.contents, rows.data());
  else
    dequantise_group(plan, header, chunk.turns, chunk.contents, rows.data());
  return rows;
}

Status decode_chunk(std::span<const std::byte> object, const KvTarget& target, uint32_t first_token,
                    const DecodeOptions& options) {
  KVCODEC_TRY(format::Header header, read_whole(object, options));
  KVCODEC_CHECK(check_target(header, target, first_token));
  KVCODEC_TRY(const DecodedChunk chunk,
              decode_pictures(object, std::move(header), options.threads));
  // Nothing can fail from here on.
  const TokenRange tokens{first_token, chunk.header.tokens};
  parallel_for(chunk.groups.size(), options.threads, [&](size_t i, int) {
    const GroupPlan& plan = chunk.groups[i];
    const std::vector<std::byte> rows = restore_group(chunk, plan);
    layout::scatter_rows(target, plan.kind, plan.layers, tokens, rows.data());
  });
  return ok_status();
}

Status verify_chunk(std::span<const std::byte> object, const DecodeOptions& options) {
  KVCODEC_TRY(format::Header header, read_whole(object, options));
  KVCODEC_CHECK(decode_pictures(object, std::move(header), options.threads));
  return ok_status();
}

}  // namespace kvcodec
