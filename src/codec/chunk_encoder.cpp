// SPDX-License-Identifier: Apache-2.0
#include "codec/chunk_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "codec/chunk_decoder.h"
#include "codec/encode_request.h"
#include "codec/exact_tier.h"
#include "codec/int8_tier.h"
#include "codec/layered_encoder.h"
#include "codec/object_writer.h"
#include "codec/pending_chunk.h"
#include "transform/float_convert.h"

namespace kvcodec {

LayeredEncoder::LayeredEncoder(const KvSource& source, TokenRange range, int threads,
                               const EncoderTuning& tuning, format::Header header)
    : PendingChunk(std::move(header), nullptr),
      source_(source),
      range_(range),
      threads_(threads),
      tuning_(tuning),
      groups_(plan_groups(header_)),
      escapes_(groups_.size()),
      turns_(header_.has_layer_steps() ? header_.rope : Rope{}, header_.id.first_token,
             header_.tokens) {
  contents_.resize(header_.pictures.size());
}

Status LayeredEncoder::quantise() {
  KVCODEC_CHECK(fill_pictures());
  for (const auto& escapes : escapes_)
    header_.escapes.insert(header_.escapes.end(), escapes.begin(), escapes.end());
  return is_calibrated(header_.tier) ? measure() : ok_status();
}

std::vector<std::byte> LayeredEncoder::gather(const GroupPlan& plan) const {
  std::vector<std::byte> rows(size_t{plan.rows.rows} * range_.count *
                              dtype_bytes(header_.shape.dtype));
  layout::gather_rows(source_, plan.kind, plan.layers, range_, rows.data());
  return rows;
}

Status LayeredEncoder::fill_pictures() {
  std::vector<Status> statuses(groups_.size(), ok_status());
  parallel_for(groups_.size(), threads_, [&](size_t i, int) {
    const std::vector<std::byte> rows = gather(groups_[i]);
    if (header_.tier == Tier::exact)
      split_group(groups_[i], rows.data(), header_, contents_);
    else
      statuses[i] =
          quantise_group(groups_[i], rows.data(), turns_, tuning_, header_, contents_, escapes_[i]);
  });
  for (Status& status : statuses) KVCODEC_CHECK(std::move(status));
  return ok_status();
}

// What quantising did to each group.
Status LayeredEncoder::measure() {
  parallel_for(groups_.size(), threads_, [&](size_t i, int) {
    const GroupPlan& plan = groups_[i];
    const std::vector<std::byte> exact = gather(plan);
    std::vector<std::byte> restored(exact.size());
    dequantise_group(plan, header_, turns_, contents_, restored.data());
    measure_rows(plan, exact.data(), restored.data(), turns_, header_, header_.groups[i]);
  });
  return ok_status();
}

Status LayeredEncoder::compare(const DecodedChunk& decoded) const {
  std::vector<Status> statuses(groups_.size(), ok_status());
  parallel_for(groups_.size(), threads_, [&](size_t i, int) {
    statuses[i] = compare(groups_[i], gather(groups_[i]), restore_unit(decoded, i));
  });
  for (Status& status : statuses) KVCODEC_CHECK(std::move(status));
  return ok_status();
}

Status LayeredEncoder::compare(const GroupPlan& plan, std::span<const std::byte> wanted,
                               std::span<const std::byte> restored) const {
  if (header_.tier == Tier::exact) {
    const auto differing = std::mismatch(wanted.begin(), wanted.end(), restored.begin());
    if (differing.first == wanted.end()) return ok_status();
    return differs(plan, static_cast<size_t>(differing.first - wanted.begin()) /
                             dtype_bytes(header_.shape.dtype));
  }
  const size_t layer_values = size_t{header_.shape.channels(plan.kind)} * header_.tokens;
  const size_t layer_bytes = layer_values * dtype_bytes(header_.shape.dtype);
  for (uint32_t i = 0; i < plan.layers.count; ++i) {
    const size_t at =
        compare_layer(plan, plan.layers.first + i, wanted.subspan(i * layer_bytes, layer_bytes),
                      restored.subspan(i * layer_bytes, layer_bytes));
    if (at < layer_values) return differs(plan, i * layer_values + at);
  }
  return ok_status();
}

// Number of the first value that is further away than quantising may take it.
size_t LayeredEncoder::compare_layer(const GroupPlan& plan, uint32_t layer,
                                     std::span<const std::byte> wanted,
                                     std::span<const std::byte> restored) const {
  const DType dtype = header_.shape.dtype;
  const size_t element = dtype_bytes(dtype), n = wanted.size() / element;
  std::vector<float> before(n), after(n);
  transform::to_floats(dtype, wanted.data(), n, before.data());
  transform::to_floats(dtype, restored.data(), n, after.data());
  const auto sink = [&](size_t i) { return i % header_.tokens < header_.sink_tokens; };
  double peak = 0;
  for (size_t i = 0; i < n; ++i)
    if (!sink(i)) peak = std::max(peak, std::abs(double{before[i]}));
  for (size_t i = 0; i < n; ++i) {
    const bool same = sink(i)
                          ? std::memcmp(&wanted[i * element], &restored[i * element], element) == 0
                          : std::abs(double{after[i]} - before[i]) <=
                                restore_tolerance(header_, plan.kind, layer, before[i], peak);
    if (!same) return i;
  }
  return n;
}

Error LayeredEncoder::differs(const GroupPlan& plan, size_t value) const {
  const size_t row = plan.rows.first_row + value / header_.tokens;
  return make_error(ErrorCode::internal,
                    "the encoded object restores another value: {} row {}, token {}",
                    kv_kind_name(plan.kind), row, value % header_.tokens);
}

EncoderTuning identity_tuning(const EncodeOptions& options, const EncoderTuning& tuning) {
  // Layer by layer as in tier int8, with steps of so many root mean squares.
  EncoderTuning coarser = tuning;
  coarser.step_rule = {0, 1 / options.profile->tier(options.tier).step};
  return coarser;
}

namespace {

Result<std::unique_ptr<PendingChunk>> prepare(const KvSource& source, const ChunkToEncode& chunk,
                                              const EncodeOptions& options,
                                              const EncoderTuning& tuning) {
  KVCODEC_CHECK(check_request(source, chunk.range, chunk.id, options));
  if (is_calibrated(options.tier)) {
    if (!options.profile->is_identity())
      return prepare_calibrated(source, chunk.range, chunk.id, options);
    return prepare_chunk(source, chunk.range, chunk.id, options, identity_tuning(options, tuning));
  }
  return prepare_chunk(source, chunk.range, chunk.id, options, tuning);
}

// Decodes the objects as a reader would, and compares with the source. How many are right until the
// first that is not, whose error is in `status`.
size_t verify(std::span<const std::unique_ptr<PendingChunk>> pending,
              std::span<const std::vector<std::byte>> objects, int threads, Status& status) {
  std::vector<ObjectToDecode> to_decode;
  for (size_t i = 0; i < objects.size(); ++i)
    to_decode.push_back({objects[i], &pending[i]->header().id, pending[i]->profile()});
  DecodeOptions options;
  options.limits = {UINT32_MAX, UINT64_MAX, UINT64_MAX};
  options.threads = threads;
  const std::vector<Result<DecodedChunk>> decoded = decode_objects(to_decode, options);
  for (size_t i = 0; i < objects.size(); ++i) {
    if (!decoded[i].ok()) {
      status = make_error(ErrorCode::internal, "the encoded object does not decode: {}",
                          decoded[i].error().message);
      return i;
    }
    status = pending[i]->compare(*decoded[i]);
    if (!status.ok()) return i;
  }
  return objects.size();
}

}  // namespace

Result<std::unique_ptr<PendingChunk>> prepare_chunk(const KvSource& source, TokenRange range,
                                                    const ChunkId& id, const EncodeOptions& options,
                                                    const EncoderTuning& tuning) {
  format::Header header = start_header(source.geometry->shape, range.count, id, options, tuning);
  auto encoder =
      std::make_unique<LayeredEncoder>(source, range, options.threads, tuning, std::move(header));
  KVCODEC_CHECK(encoder->quantise());
  return std::unique_ptr<PendingChunk>(std::move(encoder));
}

EncodedChunks finish_chunks(std::span<const std::unique_ptr<PendingChunk>> pending,
                            const EncodeOptions& options, const EncodePictures& encode) {
  EncodedChunks encoded;
  std::vector<ObjectToWrite> to_write;
  for (const auto& chunk : pending) to_write.push_back({&chunk->header(), chunk->contents()});
  for (Result<std::vector<std::byte>>& object : write_objects(to_write, options.threads, encode)) {
    if (!object.ok()) {
      encoded.status = std::move(object.error());
      break;
    }
    encoded.objects.push_back(std::move(*object));
  }
  if (options.verify) {
    Status wrong = ok_status();
    encoded.objects.resize(verify(pending, encoded.objects, options.threads, wrong));
    if (!wrong.ok()) encoded.status = std::move(wrong);
  }
  return encoded;
}

EncodedChunks encode_chunks(const KvSource& source, std::span<const ChunkToEncode> chunks,
                            const EncodeOptions& options, const EncoderTuning& tuning) {
  EncodedChunks encoded;
  std::vector<std::unique_ptr<PendingChunk>> pending;
  for (const ChunkToEncode& chunk : chunks) {
    auto next = prepare(source, chunk, options, tuning);
    if (!next.ok()) {
      encoded.status = std::move(next.error());
      break;
    }
    pending.push_back(std::move(*next));
  }
  EncodedChunks finished = finish_chunks(pending, options);
  encoded.objects = std::move(finished.objects);
  if (!finished.status.ok()) encoded.status = std::move(finished.status);
  return encoded;
}

Result<std::vector<std::byte>> encode_chunk_tuned(const KvSource& source, TokenRange range,
                                                  const ChunkId& id, const EncodeOptions& options,
                                                  const EncoderTuning& tuning) {
  const ChunkToEncode chunk{range, id};
  EncodedChunks encoded = encode_chunks(source, std::span(&chunk, 1), options, tuning);
  KVCODEC_CHECK(std::move(encoded.status));
  return std::move(encoded.objects.front());
}

Result<std::vector<std::byte>> encode_chunk(const KvSource& source, TokenRange range,
                                            const ChunkId& id, const EncodeOptions& options) {
  return encode_chunk_tuned(source, range, id, options, EncoderTuning{});
}

}  // namespace kvcodec
