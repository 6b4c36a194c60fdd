// SPDX-License-Identifier: Apache-2.0
#include "codec/int8_tier.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <tuple>

#include "base/error.h"
#include "transform/component_quantise.h"
#include "transform/float_convert.h"
#include "transform/int8_quantise.h"

namespace kvcodec {
namespace {

using transform::RotationTable;

// Calls turn(first row, second row, pair) for the row pairs of a layer that a rotation mixes.
template <typename Turn>
void for_each_pair(const KvShape& shape, KvKind kind, const RotationTable& turns,
                   const Turn& turn) {
  if (kind != KvKind::key) return;
  for (size_t head = 0; head < shape.kv_heads; ++head) {
    const size_t base = head * shape.key_dim;
    for (uint32_t pair = 0; pair < turns.pairs(); ++pair)
      turn(base + turns.first_dim(pair), base + turns.second_dim(pair), pair);
  }
}

// One layer and kind on its way to codes.
class LayerQuantiser {
 public:
  LayerQuantiser(const GroupPlan& plan, const RotationTable& turns, const EncoderTuning& tuning,
                 format::Header& header)
      : kind_(plan.kind),
        index_(static_cast<size_t>(plan.kind)),
        turns_(turns),
        tuning_(tuning),
        header_(header),
        channels_(header.shape.channels(plan.kind)),
        tokens_(header.tokens),
        sinks_(header.sink_tokens),
        floats_(size_t{channels_} * tokens_),
        codes_(tokens_) {}

  // samples: [channels][tokens], natural order.
  Status quantise(uint32_t layer, const std::byte* rows, uint8_t* samples,
                  std::vector<format::Escape>& escapes) {
    keep_sinks(layer, rows);
    transform::to_floats(header_.shape.dtype, rows, floats_.size(), floats_.data());
    KVCODEC_CHECK(check_finite(layer, ""));
    for_each_pair(header_.shape, kind_, turns_, [&](size_t first, size_t second, uint32_t pair) {
      transform::unrotate_pairs(row(first) + sinks_, row(second) + sinks_,
                                turns_.cosines(pair) + sinks_, turns_.sines(pair) + sinks_,
                                tokens_ - sinks_);
    });
    KVCODEC_CHECK(check_finite(layer, " after its rotation was undone"));
    quantise_rows(layer, samples, escapes);
    return ok_status();
  }

 private:
  float* row(size_t channel) { return floats_.data() + channel * tokens_; }

  void keep_sinks(uint32_t layer, const std::byte* rows) {
    const size_t element = dtype_bytes(header_.shape.dtype);
    for (uint32_t token = 0; token < sinks_; ++token) {
      std::byte* sink = header_.sinks.data() + sink_offset(header_, kind_, layer, token);
      for (size_t c = 0; c < channels_; ++c)
        std::memcpy(sink + c * element, rows + (c * tokens_ + token) * element, element);
    }
  }

  Status check_finite(uint32_t layer, const char* when) {
    for (uint32_t c = 0; c < channels_; ++c) {
      uint32_t special = 0;  // a loop without branches, for SIMD code
      for (uint32_t t = sinks_; t < tokens_; ++t)
        special |= (std::bit_cast<uint32_t>(row(c)[t]) & 0x7fffffffu) >= 0x7f800000u;
      if (special == 0) continue;
      uint32_t token = sinks_;
      while (std::isfinite(row(c)[token])) ++token;
      const uint32_t dim = header_.shape.head_dim(kind_);
      return make_error(ErrorCode::invalid_argument,
                        "tier {} keeps finite numbers only: {} of layer {}, token {}, head {}, "
                        "dim {} is {}{}; tier exact keeps every value",
                        tier_name(header_.tier), kv_kind_name(kind_), layer, token, c / dim,
                        c % dim, row(c)[token], when);
    }
    return ok_status();
  }

  void quantise_rows(uint32_t layer, uint8_t* samples, std::vector<format::Escape>& escapes) {
    const size_t first_row = size_t{layer} * channels_;
    const std::span<int16_t> offsets =
        std::span(header_.row_offsets[index_]).subspan(first_row, channels_);
    const float step =
        transform::fit_step(floats_.data(), tokens_, sinks_, tuning_.step_rule, offsets);
    header_.steps[index_][layer] = step;
    const uint32_t n = tokens_ - sinks_;
    for (uint32_t c = 0; c < channels_; ++c) {
      uint8_t* out = samples + size_t{c} * tokens_;
      std::fill(out, out + sinks_, transform::kZeroSample);
      const size_t escaped = transform::best_int8().quantise(row(c) + sinks_, n, step, offsets[c],
                                                             codes_.data(), out + sinks_);
      if (tuning_.sort_codes)
        header_.row_keys[index_][first_row + c] = transform::spread_key(codes_.data(), n);
      if (escaped == 0) continue;
      for (uint32_t i = 0; i < n; ++i) {
        if (std::abs(codes_[i]) <= transform::kMaxCode) continue;
        escapes.push_back({kind_, static_cast<uint32_t>(first_row + c), sinks_ + i, codes_[i]});
      }
    }
  }

  const KvKind kind_;
  const size_t index_;
  const RotationTable& turns_;
  const EncoderTuning& tuning_;
  format::Header& header_;
  const uint32_t channels_, tokens_, sinks_;
  std::vector<float> floats_;   // [channels][tokens]
  std::vector<int32_t> codes_;  // of one row
};

}  // namespace

Status quantise_group(const GroupPlan& plan, const std::byte* rows, const RotationTable& turns,
                      const EncoderTuning& tuning, format::Header& header,
                      std::span<PictureContent> contents, std::vector<format::Escape>& escapes) {
  const size_t channels = header.shape.channels(plan.kind);
  const size_t layer_values = channels * header.tokens;
  const size_t element = dtype_bytes(header.shape.dtype);
  std::vector<uint8_t> samples(plan.layers.count * layer_values);
  LayerQuantiser quantiser(plan, turns, tuning, header);
  for (uint32_t i = 0; i < plan.layers.count; ++i) {
    KVCODEC_CHECK(quantiser.quantise(plan.layers.first + i, rows + i * layer_values * element,
                                     samples.data() + i * layer_values, escapes));
  }
  for (size_t index : plan.symbols) {
    const format::Picture& picture = header.pictures[index];
    contents[index].stride = picture.width;
    contents[index].samples.assign(size_t{picture.width} * picture.height, transform::kZeroSample);
  }
  const std::vector<RowPlace> places = place_rows(header, plan);
  for (size_t row = 0; row < places.size(); ++row) {
    PictureContent& content = contents[plan.symbols[places[row].picture]];
    std::memcpy(content.samples.data() + places[row].row * content.stride,
                samples.data() + row * header.tokens, header.tokens);
  }
  return ok_status();
}

void dequantise_group(const GroupPlan& plan, const format::Header& header,
                      const RotationTable& turns, std::span<const PictureContent> contents,
                      std::byte* rows) {
  const size_t index = static_cast<size_t>(plan.kind);
  const uint32_t channels = header.shape.channels(plan.kind);
  const size_t tokens = header.tokens, element = dtype_bytes(header.shape.dtype);
  const std::vector<RowPlace> places = place_rows(header, plan);
  auto escape = std::lower_bound(
      header.escapes.begin(), header.escapes.end(), std::tuple(plan.kind, plan.rows.first_row),
      [](const format::Escape& e, const auto& place) { return std::tie(e.kind, e.row) < place; });
  std::vector<float> floats(channels * tokens);
  for (uint32_t i = 0; i < plan.layers.count; ++i) {
    const uint32_t layer = plan.layers.first + i;
    const float step = header.steps[index][layer];
    for (uint32_t c = 0; c < channels; ++c) {
      const RowPlace place = places[size_t{i} * channels + c];
      const PictureContent& content = contents[plan.symbols[place.picture]];
      const uint32_t natural = layer * channels + c;
      const int32_t offset = header.row_offsets[index][natural];
      float* row = floats.data() + c * tokens;
      transform::best_int8().dequantise(content.samples.data() + place.row * content.stride, tokens,
                                        step, offset, row);
      for (; escape != header.escapes.end() && escape->kind == plan.kind && escape->row == natural;
           ++escape)
        row[escape->token] = transform::value_of_code(escape->code, step, offset);
    }
    for_each_pair(header.shape, plan.kind, turns, [&](size_t first, size_t second, uint32_t pair) {
      transform::rotate_pairs(floats.data() + first * tokens, floats.data() + second * tokens,
                              turns.cosines(pair), turns.sines(pair), tokens);
    });
    std::byte* layer_rows = rows + i * floats.size() * element;
    transform::from_floats(header.shape.dtype, floats.data(), floats.size(), layer_rows);
    for (uint32_t token = 0; token < header.sink_tokens; ++token) {
      const std::byte* sink = header.sinks.data() + sink_offset(header, plan.kind, layer, token);
      for (size_t c = 0; c < channels; ++c)
        std::memcpy(layer_rows + (c * tokens + token) * element, sink + c * element, element);
    }
  }
}

void measure_rows(const GroupPlan& plan, const std::byte* exact, const std::byte* restored,
                  const RotationTable& turns, const format::Header& header,
                  format::BasisGroup& group) {
  const size_t index = static_cast<size_t>(plan.kind), tokens = header.tokens;
  const uint32_t channels = header.shape.channels(plan.kind);
  const size_t layer_bytes = channels * tokens * dtype_bytes(header.shape.dtype);
  std::vector<float> x(channels * tokens), error(channels * tokens);
  double noise = 0, energy = 0;
  for (uint32_t i = 0; i < plan.layers.count; ++i) {
    const uint32_t layer = plan.layers.first + i;
    transform::to_floats(header.shape.dtype, exact + i * layer_bytes, x.size(), x.data());
    transform::to_floats(header.shape.dtype, restored + i * layer_bytes, x.size(), error.data());
    for (size_t n = 0; n < x.size(); ++n) error[n] = x[n] - error[n];
    for_each_pair(header.shape, plan.kind, turns, [&](size_t first, size_t second, uint32_t pair) {
      transform::unrotate_pairs(&x[first * tokens], &x[second * tokens], turns.cosines(pair),
                                turns.sines(pair), tokens);
    });  // the error's length is the same, however it is turned
    for (size_t c = 0; c < channels; ++c) {
      const double centre =
          double{header.steps[index][layer]} * header.row_offsets[index][layer * channels + c];
      double noises[8] = {}, energies[8] = {};
      for (size_t t = header.sink_tokens; t < tokens; ++t) {
        noises[t % 8] += double{error[c * tokens + t]} * error[c * tokens + t];
        energies[t % 8] += (x[c * tokens + t] - centre) * (x[c * tokens + t] - centre);
      }
      noise += transform::add_lanes(noises);
      energy += transform::add_lanes(energies);
    }
  }
  record_errors(header, noise, energy, group);
}

void record_errors(const format::Header& header, double noise, double energy,
                   format::BasisGroup& group) {
  const double values =
      static_cast<double>(group.components) * (header.tokens - header.sink_tokens);
  group.noise = values == 0 ? 0 : static_cast<float>(std::min(noise / values, double{FLT_MAX}));
  group.relative_error =
      energy == 0 ? 0 : static_cast<float>(std::min(std::sqrt(noise / energy), double{FLT_MAX}));
}

double restore_tolerance(const format::Header& header, KvKind kind, uint32_t layer, double value,
                         double peak) {
  // A turned pair: |e0 * cos| + |e1 * sin| <= sqrt(2) * half a step.
  const bool turned = kind == KvKind::key && header.rope.style != Rope::Style::none;
  const double spread =
      header.steps[static_cast<size_t>(kind)][layer] * (turned ? std::sqrt(0.5) : 0.5);
  // Half a unit in the last place of dtype, and its smallest number.
  double half_unit = 0x1p-24, smallest = 0x1p-149;
  if (header.shape.dtype == DType::f16) half_unit = 0x1p-11, smallest = 0x1p-24;
  if (header.shape.dtype == DType::bf16) half_unit = 0x1p-8, smallest = 0x1p-133;
  // A dozen roundings to binary32 on the way, of numbers as large as the peak.
  return spread + (std::abs(value) + spread) * half_unit + smallest + peak * 0x1p-20;
}

}  // namespace kvcodec
