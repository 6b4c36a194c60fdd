// SPDX-License-Identifier: Apache-2.0
#include "bench_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "base/parallel.h"
#include "codec/chunk_decoder.h"
#include "codec/encode_request.h"
#include "codec/object_writer.h"

namespace kvcodec::bench {

void fail(const std::string& message) {
  fmt::print(stderr, "error: {}\n", message);
  std::exit(1);
}

void must_ok(const Status& status) {
  if (!status.ok()) fail(status.error().message);
}

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("cannot read " + path);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t at = 0; (at = text.find(by, from)) != std::string::npos; from = at + 1)
    parts.push_back(text.substr(from, at - from));
  parts.push_back(text.substr(from));
  return parts;
}

KvShape parse_shape(const std::string& text) {
  KvShape shape;
  unsigned layers = 0, heads = 0, dim = 0;
  if (std::sscanf(text.c_str(), "%ux%ux%u", &layers, &heads, &dim) != 3)
    fail("expected LAYERSxHEADSxDIM, found " + text);
  shape.layers = layers;
  shape.kv_heads = heads;
  shape.key_dim = shape.value_dim = dim;
  return shape;
}

HostCache tiled_cache(const Bytes& object, const KvShape& shape) {
  const ChunkInfo info = must(read_chunk_info(object));
  if (info.shape.dtype != shape.dtype) fail("--tile keeps the dtype");
  const KvGeometry from = KvGeometry::contiguous(info.shape, info.tokens);
  HostCache cache{KvGeometry::contiguous(shape, info.tokens), {}};
  const KvGeometry& to = cache.geometry;
  cache.memory.resize(to.contiguous_bytes());
  Bytes source(from.contiguous_bytes());
  must_ok(decode_chunk(object, {source, &from}, 0));
  const size_t element = dtype_bytes(shape.dtype);
  for (const KvKind kind : kKvKinds) {
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (uint32_t token = 0; token < info.tokens; ++token) {
        for (uint32_t channel = 0; channel < shape.channels(kind); ++channel) {
          const uint32_t real = channel % info.shape.channels(kind);
          const uint32_t dim = info.shape.head_dim(kind);
          std::memcpy(cache.memory.data() + to.element_offset(kind, layer, token,
                                                              channel / shape.head_dim(kind),
                                                              channel % shape.head_dim(kind)),
                      source.data() + from.element_offset(kind, layer % info.shape.layers, token,
                                                          real / dim, real % dim),
                      element);
        }
      }
    }
  }
  return cache;
}

Bytes tile(const Bytes& object, const KvShape& shape, Tier tier) {
  const HostCache cache = tiled_cache(object, shape);
  EncodeOptions options;
  options.tier = tier;
  options.verify = false;
  return must(
      encode_chunk({cache.memory, &cache.geometry}, {0, cache.geometry.tokens}, {}, options));
}

namespace {

// Rows of a Householder reflection: orthonormal, and every number other than zero.
Profile reflecting_profile(const KvShape& shape, uint32_t layers) {
  ProfileFields fields;
  fields.model = "synthetic";
  fields.shape = shape;
  fields.rope = must(make_rope(Rope::Style::neox, shape.key_dim, 500000));
  fields.tiers = {ProfileTier{0.35, 0.5, 0, 0}, {1.0, 0.5, 0, 0}, {2.6, 0.5, 0, 0}};
  for (const KvKind kind : kKvKinds) {
    for (uint32_t layer = 0; layer < shape.layers; layer += layers) {
      ProfileGroup group;
      group.kind = kind;
      group.first_layer = layer;
      group.layers = std::min(layers, shape.layers - layer);
      fields.groups.push_back(std::move(group));
    }
  }
  parallel_for(fields.groups.size(), 0, [&](size_t index, int) {
    ProfileGroup& group = fields.groups[index];
    const uint32_t c = group.layers * shape.channels(group.kind);
    std::mt19937 random(static_cast<uint32_t>(index));
    std::normal_distribution<float> normal;
    group.components = c;
    group.mean.assign(c, 0.5f);
    group.metric.assign(c, 1.0f);
    group.variance.assign(c, 1.0f);
    std::vector<float> v(c);
    float norm = 0;
    for (float& x : v) {
      x = normal(random);
      norm += x * x;
    }
    group.basis.resize(size_t{c} * c);
    for (uint32_t r = 0; r < c; ++r)
      for (uint32_t i = 0; i < c; ++i)
        group.basis[size_t{r} * c + i] = (r == i ? 1.0f : 0.0f) - 2 * v[r] * v[i] / norm;
  });
  const Bytes file = must(serialise_profile(fields));
  fields = {};
  return must(Profile::parse(file));
}

}  // namespace

CalibratedChunk calibrated_chunk(const Bytes& real, const KvShape& shape, uint32_t layers) {
  const DecodedChunk from = must(decode_pictures(real, must(format::read_header(real, {})), {}));
  const uint32_t tokens = from.header.tokens;
  CalibratedChunk made{reflecting_profile(shape, layers), {}};
  EncodeOptions options;
  options.tier = from.header.tier;
  options.profile = &made.profile;
  options.sink_tokens = 0;
  format::Header header = start_header(shape, tokens, {}, options, EncoderTuning{});
  const auto source_of = [&](const format::BasisGroup& group) {
    for (size_t g = 0; g < from.header.groups.size(); ++g)
      if (from.header.groups[g].kind == group.kind) return g;
    return size_t{0};
  };
  for (format::BasisGroup& group : header.groups) {
    const format::BasisGroup& source = from.header.groups[source_of(group)];
    group.live_rows =
        static_cast<uint32_t>(uint64_t{source.live_rows} * group.components / source.components);
    group.step = source.step;
    std::copy_n(source.delta, 2, group.delta);
    group.noise = source.noise;
    group.relative_error = source.relative_error;
  }
  header.pictures = format::layout_pictures(header);
  const std::vector<GroupPlan> plans = plan_groups(header);
  std::vector<PictureContent> contents(header.pictures.size());
  for (size_t g = 0; g < plans.size(); ++g) {
    const size_t source_index = source_of(header.groups[g]);
    const format::BasisGroup& source = from.header.groups[source_index];
    const LiveSamples samples(from.groups[source_index], from.header, from.contents);
    uint32_t row = 0;
    for (const size_t index : plans[g].symbols) {
      const format::Picture& picture = header.pictures[index];
      PictureContent& content = contents[index];
      content.stride = picture.width;
      content.samples.assign(size_t{picture.width} * picture.height, uint8_t{128});
      for (uint32_t y = 0; y < picture.rows; ++y, ++row) {
        const uint8_t* in = samples.at(
            std::min(source.live_rows - 1, static_cast<uint32_t>(uint64_t{row} * source.components /
                                                                 header.groups[g].components)));
        for (uint32_t t = 0; t < tokens; ++t)
          content.samples[y * content.stride + t] = in[(t + row * 37 + g * 11) % tokens];
      }
    }
  }
  const ObjectToWrite parts{&header, contents};
  made.object = must(std::move(write_objects(std::span(&parts, 1), 0).front()));
  return made;
}

// A paged cache as vLLM's FlashAttention backend has it, K and V of a layer apart, blocks of 16.
KvGeometry paged(const KvShape& shape, uint32_t tokens) {
  constexpr uint32_t kBlock = 16;
  const size_t e = dtype_bytes(shape.dtype), d = shape.key_dim, h = shape.kv_heads;
  const uint32_t blocks = (tokens + kBlock - 1) / kBlock;
  KvGeometry geometry;
  geometry.shape = shape;
  geometry.tokens = tokens;
  geometry.block_tokens = kBlock;
  geometry.block_stride = kBlock * h * d * e;
  const size_t half = blocks * geometry.block_stride, layer = 2 * half;
  geometry.key = {0, layer, h * d * e, d * e, e};
  geometry.value = {half, layer, h * d * e, d * e, e};
  for (uint32_t i = 0; i < blocks; ++i) geometry.block_table.push_back((i * 7 + 3) % blocks);
  return geometry;
}

}  // namespace kvcodec::bench
