// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "codec/calibrated_tier.h"
#include "transform/basis_product.h"
#include "transform/float_convert.h"

namespace kvcodec {

// Numbers of one panel, [channels][row].
class PanelMatrix {
 public:
  PanelMatrix(size_t channels, uint32_t tokens)
      : row_(transform::padded_columns(tokens)), values_(channels * row_) {}
  float* row(size_t channel) { return values_.data() + channel * row_; }
  const float* data() const { return values_.data(); }
  float* data() { return values_.data(); }
  size_t row_size() const { return row_; }

 private:
  size_t row_;
  std::vector<float> values_;
};

// One panel, with the numbers that all steps need.
class PanelWork {
 public:
  PanelWork(const CalibratedContext& context, const Panel& panel)
      : context_(context),
        panel_(panel),
        plan_(context.plans[panel.group]),
        group_(context.profile.groups()[panel.group]),
        shape_(context.header.shape),
        channels_(group_.mean.size()),
        element_(dtype_bytes(shape_.dtype)),
        sinks_(context.header.sink_tokens > panel.tokens.first
                   ? std::min(context.header.sink_tokens - panel.tokens.first, panel.tokens.count)
                   : 0) {}

  const ProfileGroup& group() const { return group_; }
  size_t channels() const { return channels_; }
  uint32_t tokens() const { return panel_.tokens.count; }
  uint32_t sinks() const { return sinks_; }  // leading columns that are sinks

  void to_matrix(const std::byte* rows, PanelMatrix& out) const {
    for (size_t c = 0; c < channels_; ++c)
      transform::to_floats(shape_.dtype, rows + c * tokens() * element_, tokens(), out.row(c));
  }

  void to_elements(PanelMatrix& matrix, std::byte* rows) const {
    for (size_t c = 0; c < channels_; ++c)
      transform::from_floats(shape_.dtype, matrix.row(c), tokens(), rows + c * tokens() * element_);
  }

  void zero_sinks(PanelMatrix& matrix) const {
    if (sinks_ == 0) return;
    for (size_t c = 0; c < channels_; ++c) std::fill_n(matrix.row(c), sinks_, 0.0f);
  }

  template <typename Turn>
  void turn(PanelMatrix& matrix, const Turn& turn_pair) const {
    if (group_.kind != KvKind::key) return;
    const transform::RotationTable& turns = context_.turns;
    const uint32_t t = panel_.tokens.first;
    for (size_t base = 0; base < channels_; base += shape_.key_dim) {
      for (uint32_t pair = 0; pair < turns.pairs(); ++pair) {
        turn_pair(matrix.row(base + turns.first_dim(pair)),
                  matrix.row(base + turns.second_dim(pair)), turns.cosines(pair) + t,
                  turns.sines(pair) + t, tokens());
      }
    }
  }

  void centre(PanelMatrix& matrix) const {
    for (size_t c = 0; c < channels_; ++c) {
      float* row = matrix.row(c);
      const float mean = group_.mean[c];
      for (uint32_t t = 0; t < tokens(); ++t) row[t] -= mean;
    }
    zero_sinks(matrix);
  }

  // M times the matrix.
  PanelMatrix weigh(PanelMatrix matrix) const {
    if (!group_.block_metric()) {
      for (size_t c = 0; c < channels_; ++c) {
        float* row = matrix.row(c);
        for (uint32_t t = 0; t < tokens(); ++t) row[t] *= group_.metric[c];
      }
      return matrix;
    }
    PanelMatrix out(channels_, tokens());
    const size_t dim = shape_.head_dim(group_.kind);
    for (size_t first = 0; first < channels_; first += dim) {
      transform::Product product;
      product.rows = product.depth = dim;
      product.columns = tokens();
      product.a = group_.metric.data() + first * dim;
      product.a_row = dim;
      product.a_depth = 1;
      product.b = matrix.row(first);
      product.out = out.row(first);
      product.b_row = product.out_row = matrix.row_size();
      transform::best_product().multiply(product);
    }
    return out;
  }

  Status check_finite(PanelMatrix& matrix, const char* when) const {
    for (size_t c = 0; c < channels_; ++c) {
      const float* row = matrix.row(c);
      uint32_t special = 0;  // a loop without branches, for SIMD code
      for (uint32_t t = sinks_; t < tokens(); ++t)
        special |= (std::bit_cast<uint32_t>(row[t]) & 0x7fffffffu) >= 0x7f800000u;
      if (special == 0) continue;
      uint32_t t = sinks_;
      while (std::isfinite(row[t])) ++t;
      const size_t width = shape_.channels(group_.kind), dim = shape_.head_dim(group_.kind);
      return make_error(ErrorCode::invalid_argument,
                        "tier {} keeps finite numbers only: {} of layer {}, token {}, head {}, dim "
                        "{} is {}{}; tier exact keeps every value",
                        tier_name(context_.header.tier), kv_kind_name(group_.kind),
                        group_.first_layer + c / width, panel_.tokens.first + t, c % width / dim,
                        c % dim, row[t], when);
    }
    return ok_status();
  }

  // Sinks into `rows`, as they are in the header.
  void put_sinks(std::byte* rows) const {
    const size_t width = shape_.channels(group_.kind);
    for (uint32_t i = 0; i < sinks_ * group_.layers; ++i) {
      const uint32_t t = i % sinks_, layer = i / sinks_;
      const std::byte* sink = context_.header.sinks.data() +
                              sink_offset(context_.header, group_.kind, group_.first_layer + layer,
                                          panel_.tokens.first + t);
      for (size_t c = 0; c < width; ++c)
        std::memcpy(rows + ((layer * width + c) * tokens() + t) * element_, sink + c * element_,
                    element_);
    }
  }

 private:
  const CalibratedContext& context_;
  const Panel& panel_;
  const GroupPlan& plan_;
  const ProfileGroup& group_;
  const KvShape& shape_;
  const size_t channels_, element_;
  const uint32_t sinks_;
};

}  // namespace kvcodec
