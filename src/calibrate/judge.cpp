// SPDX-License-Identifier: Apache-2.0
#include "calibrate/judge.h"

#include <algorithm>

#include "base/error.h"
#include "calibrate/sensitivity.h"
#include "kvcodec/fetch.h"
#include "layout/row_gather.h"

namespace kvcodec::calibration {
namespace {

void copy_cache(const KvSource& from, const KvTarget& to, uint32_t tokens) {
  const KvShape& shape = from.geometry->shape;
  std::vector<std::byte> rows;
  for (KvKind kind : kKvKinds) {
    rows.resize(size_t{shape.channels(kind)} * tokens * dtype_bytes(shape.dtype));
    for (uint32_t layer = 0; layer < shape.layers && !rows.empty(); ++layer) {
      layout::gather_rows(from, kind, {layer, 1}, {0, tokens}, rows.data());
      layout::scatter_rows(to, kind, {layer, 1}, {0, tokens}, rows.data());
    }
  }
}

}  // namespace

void Judge::keep_cache(const KvSource& kv, uint32_t tokens, Text& text) const {
  text.geometry = KvGeometry::contiguous(kv.geometry->shape, tokens);
  text.memory.resize(text.geometry.contiguous_bytes());
  copy_cache(kv, {text.memory, &text.geometry}, tokens);
}

Status Judge::add_dump(const KvSource& kv) {
  auto text = std::make_unique<Text>();
  keep_cache(kv, kv.geometry->tokens, *text);
  texts_.push_back(std::move(text));
  return ok_status();
}

Status Judge::add_text(const Window& window) {
  auto text = std::make_unique<Text>();
  const auto tokens = std::span(window.tokens);
  const size_t prefix = tokens.size() - options_.continuation_tokens;
  text->continuation.assign(tokens.begin() + static_cast<std::ptrdiff_t>(prefix), tokens.end());
  KVCODEC_TRY(const KvSource kv, model_->prefill(tokens.first(prefix)));
  keep_cache(kv, static_cast<uint32_t>(prefix), *text);
  // The reference goes the same way as what it is compared with.
  const auto restore = [&](const KvTarget& target) {
    copy_cache({text->memory, &text->geometry}, target, static_cast<uint32_t>(prefix));
    return ok_status();
  };
  KVCODEC_CHECK(continue_text(
      *text, restore, [&](size_t, std::span<const float> logits) { text->exact.add(logits); }));
  texts_.push_back(std::move(text));
  return ok_status();
}

Status Judge::continue_text(const Text& text, const CalibrationModel::Fill& fill,
                            const CalibrationModel::EachLogits& each) {
  const uint32_t prefix = text.geometry.tokens;
  if (!transformer_) return model_->continue_from(prefix, fill, text.continuation, each);
  std::vector<std::byte> memory(text.memory.size());
  KVCODEC_CHECK(fill({memory, &text.geometry}));
  KVCODEC_TRY(const Transformer::Cache cache, rotated_cache({memory, &text.geometry}, prefix));
  KVCODEC_CHECK(transformer_->forward(cache, text.continuation));
  const size_t vocabulary = transformer_->logits().size() / text.continuation.size();
  for (size_t i = 0; i < text.continuation.size(); ++i)
    each(i, std::span(transformer_->logits()).subspan(i * vocabulary, vocabulary));
  return ok_status();
}

Result<Judgement> Judge::judge(const Profile& profile) {
  Judgement result;
  result.noise.assign(profile.groups().size(), 0);
  double bits = 0, values = 0, kl = 0, judged = 0, chunks = 0;
  EncodeOptions encode;
  encode.tier = Tier::high;
  encode.profile = &profile;
  encode.noise_factor = 0;
  encode.verify = false;
  encode.sink_tokens = options_.sink_tokens;
  encode.threads = options_.threads;
  DecodeOptions decode;
  decode.profile = &profile;
  decode.threads = options_.threads;
  for (const auto& text : texts_) {
    const KvSource source{text->memory, &text->geometry};
    std::vector<std::vector<std::byte>> objects;
    for (uint32_t first = 0; first < text->geometry.tokens; first += kDefaultChunkTokens) {
      if (options_.stop.stop_requested())
        return make_error(ErrorCode::cancelled, "calibration: stopped while a step was judged");
      const TokenRange range{first, std::min(kDefaultChunkTokens, text->geometry.tokens - first)};
      ChunkId id;
      id.first_token = first;
      KVCODEC_TRY(std::vector<std::byte> object, encode_chunk(source, range, id, encode));
      KVCODEC_TRY(const ChunkInfo info, read_chunk_info(object));
      for (size_t g = 0; g < result.noise.size(); ++g) result.noise[g] += info.distortions[g].noise;
      chunks += 1;
      bits += 8.0 * static_cast<double>(object.size());
      values += static_cast<double>(info.values());
      objects.push_back(std::move(object));
    }
    if (model_ == nullptr) continue;
    const auto restore = [&](const KvTarget& target) -> Status {
      for (size_t i = 0; i < objects.size(); ++i) {
        const auto first = static_cast<uint32_t>(i) * kDefaultChunkTokens;
        KVCODEC_CHECK(decode_chunk(objects[i], target, first, decode));
      }
      return ok_status();
    };
    KVCODEC_CHECK(continue_text(*text, restore, [&](size_t i, std::span<const float> logits) {
      kl += text->exact.divergence(i, logits);
    }));
    judged += static_cast<double>(text->continuation.size());
  }
  result.kl = judged > 0 ? kl / judged : 0;
  result.bits_per_value = values > 0 ? bits / values : 0;
  for (float& noise : result.noise) noise /= static_cast<float>(chunks);
  return result;
}

}  // namespace kvcodec::calibration
