// SPDX-License-Identifier: Apache-2.0
#include "unit/format/random_header.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>

#include "base/hash.h"
#include "format/header_fields.h"

namespace kvcodec::format {

namespace {

class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  uint64_t bits() { return random_(); }
  uint32_t between(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(bits() % (uint64_t{high} - low + 1));
  }
  Digest digest() {
    Digest digest;
    for (std::byte& byte : digest.bytes) byte = static_cast<std::byte>(bits());
    return digest;
  }

 private:
  std::mt19937_64 random_;
};

void fill_groups(Header& header, Generator& g) {
  for (KvKind kind : kKvKinds) {
    const uint32_t channels = header.shape.channels(kind);
    if (channels == 0) continue;
    const bool identity = header.basis == Basis::identity;
    const auto laid_out = row_groups(header.shape, kind, header.max_picture_height);
    for (uint32_t layer = 0, i = 0; layer < header.shape.layers; ++i) {
      BasisGroup group;
      group.kind = kind;
      group.first_layer = layer;
      group.layers =
          identity ? laid_out[i].rows / channels : g.between(1, header.shape.layers - layer);
      group.components = group.live_rows = group.layers * channels;
      if (!identity) {
        group.components = g.between(1, group.components);
        group.live_rows = g.between(0, group.components);
        group.step = 1e-3f * static_cast<float>(g.between(1, 1000));
        for (float& delta : group.delta) delta = 1e-3f * static_cast<float>(g.between(0, 1000));
      }
      group.noise = static_cast<float>(g.between(0, 1000));
      group.relative_error = static_cast<float>(g.between(0, 1000));
      header.groups.push_back(group);
      layer += group.layers;
    }
  }
}

void fill_sinks(Header& header, Generator& g) {
  header.sink_tokens = g.between(0, std::min(header.tokens, 4u));
  header.sinks.resize(header.shape.token_bytes() * header.sink_tokens);
  for (std::byte& byte : header.sinks) byte = static_cast<std::byte>(g.bits());
}

void fill_steps(Header& header, Generator& g) {
  for (KvKind kind : kKvKinds) {
    const auto i = static_cast<size_t>(kind);
    if (header.rows(kind) > 0) {
      header.steps[i].resize(header.shape.layers);
      for (float& step : header.steps[i]) step = 1e-3f * static_cast<float>(g.between(1, 1000));
    }
    header.row_offsets[i].resize(header.rows(kind));
    for (int16_t& offset : header.row_offsets[i]) offset = static_cast<int16_t>(g.bits());
  }
}

// A row that may have escapes, or nothing.
std::optional<uint32_t> escape_row(const Header& header, KvKind kind, Generator& g) {
  if (header.has_row_keys()) return g.between(0, header.rows(kind) - 1);
  uint32_t first = 0;
  std::vector<uint32_t> rows;
  for (const BasisGroup& group : header.groups) {
    if (group.kind != kind) continue;
    for (uint32_t row = 0; row < group.live_rows; ++row) rows.push_back(first + row);
    first += group.components;
  }
  if (rows.empty()) return std::nullopt;
  return rows[g.bits() % rows.size()];
}

void fill_escapes(Header& header, Generator& g) {
  if (header.sink_tokens == header.tokens) return;
  for (uint32_t n = g.between(0, 5); n > 0; --n) {
    const KvKind kind = header.shape.value_dim > 0 && g.bits() % 2 ? KvKind::value : KvKind::key;
    const auto magnitude = static_cast<int32_t>(g.between(128, INT32_MAX));
    const auto row = escape_row(header, kind, g);
    if (!row) continue;
    header.escapes.push_back({kind, *row, g.between(header.sink_tokens, header.tokens - 1),
                              g.bits() % 2 ? magnitude : -magnitude});
  }
  const auto position = [](const Escape& e) { return std::tuple(e.kind, e.row, e.token); };
  std::sort(header.escapes.begin(), header.escapes.end(),
            [&](const Escape& a, const Escape& b) { return position(a) < position(b); });
  header.escapes.erase(
      std::unique(header.escapes.begin(), header.escapes.end(),
                  [&](const Escape& a, const Escape& b) { return position(a) == position(b); }),
      header.escapes.end());
}

void fill_pictures(Header& header, Generator& g) {
  header.pictures = layout_pictures(header);
  for (Picture& picture : header.pictures) {
    const bool symbols = picture.plane == Plane::symbols;
    const uint32_t samples = picture.rows * header.tokens;
    picture.payload_checksum = g.bits();
    if (!symbols) {
      picture.bytes = low_bits_bytes(header, picture.kind, picture.rows);
    } else if (samples > 1 && g.bits() % 3 != 0) {
      picture.coding = g.bits() % 2 ? Coding::hevc : Coding::hevc_rice;
      picture.bytes = g.between(1, samples - 1);
    } else {
      picture.bytes = samples;
    }
    picture.content_checksum = picture.coding == Coding::raw ? picture.payload_checksum : g.bits();
  }
}

}  // namespace

Header random_header(uint32_t seed) {
  Generator g(seed);
  Header header;
  header.tier = static_cast<Tier>(g.between(1, 5));
  if (is_calibrated(header.tier) && g.bits() % 3 == 0) header.basis = Basis::identity;
  header.id = {g.digest(), g.digest(), g.between(0, 1u << 31)};
  header.profile = g.digest();
  header.tokens = g.between(1, 40);
  header.shape.layers = g.between(1, 5);
  header.shape.kv_heads = g.between(1, 4);
  header.shape.key_dim = g.between(1, 70);
  header.shape.value_dim = g.bits() % 4 == 0 ? 0 : g.between(1, 70);
  header.shape.dtype = static_cast<DType>(g.between(1, 3));
  header.max_picture_height = g.between(18, 40) * 8;
  if (header.shape.key_dim >= 2 && g.bits() % 3 != 0) {
    header.rope.style = static_cast<Rope::Style>(g.between(1, 2));
    header.rope.rotary_dims = 2 * g.between(1, header.shape.key_dim / 2);
    header.rope.phase_steps.resize(header.rope.rotary_dims / 2);
    for (uint64_t& step : header.rope.phase_steps) step = g.bits();
  }
  for (KvKind kind : kKvKinds) {
    const auto i = static_cast<size_t>(kind);
    if (header.has_row_keys()) header.row_keys[i].resize(header.rows(kind));
    for (uint8_t& key : header.row_keys[i]) key = static_cast<uint8_t>(g.bits());
    if (header.tier == Tier::exact && header.shape.dtype == DType::f16 && header.rows(kind) > 0) {
      header.symbol_mantissa_bits[i] = static_cast<uint8_t>(g.between(0, 3));
    }
  }
  if (is_calibrated(header.tier)) fill_groups(header, g);
  if (header.tier != Tier::exact) fill_sinks(header, g);
  if (header.has_layer_steps()) fill_steps(header, g);
  if (header.tier != Tier::exact) fill_escapes(header, g);
  fill_pictures(header, g);
  return header;
}

Header example_header() {
  Header header;
  header.tier = Tier::int8;
  header.id.first_token = 512;
  header.tokens = 6;
  header.shape = {2, 2, 4, 4, DType::f16};
  header.max_picture_height = 144;
  header.rope = {Rope::Style::neox, 4, {uint64_t{1} << 61, uint64_t{1} << 52}};
  header.sink_tokens = 1;
  for (size_t i = 0; i < 2; ++i) {
    header.row_keys[i].assign(16, 7);
    header.steps[i] = {0.5f, 0.25f};
    header.row_offsets[i].assign(16, -3);
  }
  header.sinks.resize(header.shape.token_bytes());
  header.escapes = {
      {KvKind::key, 3, 1, 200}, {KvKind::key, 3, 2, -128}, {KvKind::value, 0, 5, 128}};
  header.pictures = layout_pictures(header);
  for (Picture& picture : header.pictures) {
    picture.coding = Coding::hevc;
    picture.bytes = 40;
  }
  return header;
}

void fix_checksum(std::vector<std::byte>& header) {
  const size_t at = header.size() - kChecksumBytes;
  const uint64_t checksum = checksum64(std::span(header).first(at));
  std::memcpy(header.data() + at, &checksum, sizeof checksum);
}

}  // namespace kvcodec::format
