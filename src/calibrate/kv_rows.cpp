// SPDX-License-Identifier: Apache-2.0
#include "calibrate/kv_rows.h"

#include <cmath>

#include "base/error.h"
#include "layout/row_gather.h"
#include "transform/float_convert.h"
#include "transform/rotation.h"

namespace kvcodec::calibration {
namespace {

// One layer: [channels][tokens].
void unrotate_layer(const KvShape& shape, const transform::RotationTable& turns, uint32_t tokens,
                    std::vector<float>& rows) {
  for (uint32_t head = 0; head < shape.kv_heads; ++head) {
    float* base = &rows[size_t{head} * shape.key_dim * tokens];
    for (uint32_t pair = 0; pair < turns.pairs(); ++pair)
      transform::unrotate_pairs(base + size_t{turns.first_dim(pair)} * tokens,
                                base + size_t{turns.second_dim(pair)} * tokens, turns.cosines(pair),
                                turns.sines(pair), tokens);
  }
}

}  // namespace

Result<std::vector<float>> unrotated_rows(const KvSource& source, KvKind kind, uint32_t first_layer,
                                          uint32_t layers, TokenRange tokens, const Rope& rope) {
  const KvShape& shape = source.geometry->shape;
  const size_t channels = shape.channels(kind), all = channels * layers, count = tokens.count;
  const transform::RotationTable turns(rope, tokens.first, tokens.count);
  std::vector<float> out(count * all), floats(channels * count);
  std::vector<std::byte> elements(floats.size() * dtype_bytes(shape.dtype));
  for (uint32_t i = 0; i < layers && !floats.empty(); ++i) {
    layout::gather_rows(source, kind, {first_layer + i, 1}, tokens, elements.data());
    transform::to_floats(shape.dtype, elements.data(), floats.size(), floats.data());
    if (kind == KvKind::key) unrotate_layer(shape, turns, tokens.count, floats);
    for (size_t c = 0; c < channels; ++c) {
      for (size_t t = 0; t < count; ++t) {
        const float value = floats[c * count + t];
        if (!std::isfinite(value))
          return make_error(ErrorCode::invalid_argument,
                            "calibration: {} of layer {}, token {}, channel {} is {}",
                            kv_kind_name(kind), first_layer + i, tokens.first + t, c, value);
        out[t * all + i * channels + c] = value;
      }
    }
  }
  return out;
}

}  // namespace kvcodec::calibration
