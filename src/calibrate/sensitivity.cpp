// SPDX-License-Identifier: Apache-2.0
#include "calibrate/sensitivity.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "calibrate/kv_rows.h"
#include "calibrate/predictions.h"
#include "layout/row_gather.h"
#include "transform/float_convert.h"

namespace kvcodec::calibration {
namespace {

constexpr uint32_t kContinuation = 96, kSamples = 2;
constexpr uint32_t kQueryPlaces = 4;  // prefix positions from which queries are seen
// Injected noise has this part of a head's own spread: enough to be seen in the KL of one head,
// and still of the size that a coarse tier makes.
constexpr double kInjected = 0.5;

// Numbers of mean 0 and variance 1; the sequence is fixed by the seed on every machine.
class Noise {
 public:
  explicit Noise(uint64_t seed) : random_(seed) {}
  float next() {
    // The sum of 12 uniform numbers, less 6.
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += std::ldexp(static_cast<double>(random_() >> 11), -53);
    return static_cast<float>(sum);
  }

 private:
  std::mt19937_64 random_;
};

// All of `from`, element for element.
void copy_all(const KvSource& from, const KvTarget& to, uint32_t tokens,
              std::vector<std::byte>& buffer) {
  const KvShape& shape = from.geometry->shape;
  for (KvKind kind : kKvKinds) {
    buffer.resize(size_t{shape.channels(kind)} * tokens * dtype_bytes(shape.dtype));
    for (uint32_t layer = 0; layer < shape.layers && !buffer.empty(); ++layer) {
      layout::gather_rows(from, kind, {layer, 1}, {0, tokens}, buffer.data());
      layout::scatter_rows(to, kind, {layer, 1}, {0, tokens}, buffer.data());
    }
  }
}

struct NoisyHead {
  KvKind kind;
  uint32_t layer, head;
  double size;  // root mean square
};

void add_noise(const KvTarget& to, const NoisyHead& place, TokenRange tokens, uint64_t seed) {
  const KvShape& shape = to.geometry->shape;
  const size_t dim = shape.head_dim(place.kind), n = tokens.count;
  std::vector<std::byte> rows(shape.channels(place.kind) * n * dtype_bytes(shape.dtype));
  std::vector<float> head(dim * n);
  const KvSource source{to.memory, to.geometry};
  layout::gather_rows(source, place.kind, {place.layer, 1}, tokens, rows.data());
  std::byte* at = rows.data() + place.head * head.size() * dtype_bytes(shape.dtype);
  transform::to_floats(shape.dtype, at, head.size(), head.data());
  // Rotating a key does not change what white noise in it is.
  Noise noise(seed);
  for (float& x : head) x += static_cast<float>(place.size) * noise.next();
  transform::from_floats(shape.dtype, head.data(), head.size(), at);
  layout::scatter_rows(to, place.kind, {place.layer, 1}, tokens, rows.data());
}

}  // namespace

Result<Transformer::Cache> rotated_cache(const KvSource& kv, uint32_t tokens) {
  Transformer::Cache cache;
  cache.tokens = tokens;
  for (uint32_t layer = 0; layer < kv.geometry->shape.layers; ++layer) {
    for (KvKind kind : kKvKinds) {
      KVCODEC_TRY(std::vector<float> rows, unrotated_rows(kv, kind, layer, 1, {0, tokens}, Rope{}));
      (kind == KvKind::key ? cache.keys : cache.values).push_back(std::move(rows));
    }
  }
  return cache;
}

HeadMoments::HeadMoments(const KvShape& shape, KvKind kind)
    : heads_(shape.kv_heads),
      dim_(shape.head_dim(kind)),
      sums_(size_t{shape.layers} * heads_ * dim_ * dim_) {}

void HeadMoments::add(uint32_t layer, const float* rows, size_t tokens) {
  const auto dim = static_cast<blasint>(dim_), width = static_cast<blasint>(heads_ * dim_);
  for (size_t head = 0; head < heads_; ++head) {
    const float* at = rows + head * dim_;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, dim, dim, static_cast<blasint>(tokens),
                1.0f, at, width, at, width, 1.0f, &sums_[(layer * heads_ + head) * dim_ * dim_],
                dim);
  }
}

WindowSplit split_window(size_t tokens) {
  WindowSplit split;
  split.continuation = std::min<uint32_t>(kContinuation, static_cast<uint32_t>(tokens / 2));
  split.prefix = static_cast<uint32_t>(tokens) - split.continuation;
  split.samples = kSamples;
  return split;
}

Status add_gradients(const DecoderWeights& weights, const KvSource& kv,
                     std::span<const int32_t> tokens, const CalibrationOptions& options,
                     uint64_t seed, const WindowMoments& moments) {
  const WindowSplit split = split_window(tokens.size());
  KVCODEC_TRY(const Transformer::Cache cache, rotated_cache(kv, split.prefix));
  Transformer decoder(weights);
  KVCODEC_CHECK(decoder.forward(cache, tokens.subspan(split.prefix)));
  const size_t used = split.prefix - options.sink_tokens;
  for (uint32_t layer = 0; layer < weights.config().layers; ++layer) {
    const std::vector<float> rows = decoder.queries_at_prefix(layer, kQueryPlaces);
    moments.queries->add(layer, rows.data(),
                         rows.size() / kv.geometry->shape.channels(KvKind::key));
  }
  moments.queries->count(split.continuation);
  for (uint32_t sample = 0; sample < split.samples; ++sample) {
    KVCODEC_CHECK(decoder.backward_of_sample(
        seed * split.samples + sample,
        [&](KvKind kind, uint32_t layer, const std::vector<float>& rows) {
          const size_t width = rows.size() / split.prefix;
          moments.gradients[static_cast<size_t>(kind)]->add(
              layer, &rows[options.sink_tokens * width], used);
        }));
    for (HeadMoments* m : moments.gradients) m->count(used * split.continuation);
  }
  return ok_status();
}

Result<HeadMoments> output_moments(const DecoderWeights& weights, const KvShape& shape) {
  HeadMoments moments(shape, KvKind::value);
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    KVCODEC_TRY(const DecoderLayer w, weights.layer(layer));
    const std::vector<float> rows = by_kv_head(w.output, weights.config());
    moments.add(layer, rows.data(), rows.size() / shape.channels(KvKind::value));
  }
  moments.count(weights.config().width);
  return moments;
}

Result<double> decoder_mismatch(CalibrationModel& model, const KvSource& kv,
                                std::span<const int32_t> tokens) {
  const WindowSplit split = split_window(tokens.size());
  const auto continuation = tokens.subspan(split.prefix);
  KVCODEC_TRY(const Transformer::Cache cache, rotated_cache(kv, split.prefix));
  Transformer decoder(*model.weights());
  KVCODEC_CHECK(decoder.forward(cache, continuation));
  // Copied, as the model may use what `kv` points to.
  std::vector<std::byte> memory, buffer;
  const KvGeometry geometry = KvGeometry::contiguous(kv.geometry->shape, split.prefix);
  memory.resize(geometry.contiguous_bytes());
  copy_all(kv, {memory, &geometry}, split.prefix, buffer);
  Predictions exact;
  KVCODEC_CHECK(model.continue_from(
      split.prefix,
      [&](const KvTarget& target) {
        copy_all({memory, &geometry}, target, split.prefix, buffer);
        return ok_status();
      },
      continuation, [&](size_t, std::span<const float> logits) { exact.add(logits); }));
  const size_t vocabulary = model.weights()->config().vocabulary;
  double kl = 0;
  for (size_t i = 0; i < exact.size(); ++i)
    kl += exact.divergence(i, std::span(decoder.logits()).subspan(i * vocabulary, vocabulary));
  return kl / static_cast<double>(exact.size());
}

Result<InjectedCosts> inject_noise(CalibrationModel& model, std::span<const Window> windows,
                                   const std::vector<double> (&spread)[2],
                                   const CalibrationOptions& options) {
  const KvShape& shape = model.facts().shape;
  InjectedCosts result;
  const size_t heads = size_t{shape.layers} * shape.kv_heads;
  for (auto& costs : result.costs) costs.assign(heads, 0);
  size_t done = 0;
  for (const Window& window : windows) {
    const WindowSplit split = split_window(window.tokens.size());
    const auto tokens = std::span(window.tokens);
    std::vector<std::byte> buffer;
    const KvGeometry geometry = KvGeometry::contiguous(shape, split.prefix);
    std::vector<std::byte> memory(geometry.contiguous_bytes());
    KVCODEC_TRY(const KvSource kv, model.prefill(tokens.first(split.prefix)));
    copy_all(kv, {memory, &geometry}, split.prefix, buffer);
    const auto judge = [&](const NoisyHead* place,
                           const CalibrationModel::EachLogits& each) -> Status {
      return model.continue_from(
          split.prefix,
          [&](const KvTarget& target) {
            copy_all({memory, &geometry}, target, split.prefix, buffer);
            const TokenRange noisy{options.sink_tokens, split.prefix - options.sink_tokens};
            if (place != nullptr) add_noise(target, *place, noisy, options.seed);
            return ok_status();
          },
          tokens.subspan(split.prefix), each);
    };
    Predictions exact;
    KVCODEC_CHECK(judge(nullptr, [&](size_t, std::span<const float> l) { exact.add(l); }));
    for (KvKind kind : kKvKinds) {
      const auto index = static_cast<size_t>(kind);
      for (size_t i = 0; i < heads && shape.channels(kind) > 0; ++i) {
        if (options.stop.stop_requested())
          return make_error(ErrorCode::cancelled, "calibration: stopped while noise was injected");
        const double size = kInjected * std::sqrt(spread[index][i]);
        const NoisyHead place{kind, static_cast<uint32_t>(i / shape.kv_heads),
                              static_cast<uint32_t>(i % shape.kv_heads), size};
        double kl = 0;
        KVCODEC_CHECK(judge(&place, [&](size_t t, std::span<const float> logits) {
          kl += exact.divergence(t, logits);
        }));
        if (size > 0)
          result.costs[index][i] += kl / static_cast<double>(exact.size()) / (size * size);
        if (options.progress) options.progress("noise", ++done, windows.size() * 2 * heads);
      }
    }
  }
  return result;
}

}  // namespace kvcodec::calibration
