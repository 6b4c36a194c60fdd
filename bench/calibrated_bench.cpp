// SPDX-License-Identifier: Apache-2.0
// The calibrated tiers on a cache and its model's profile: size, distortion, speed of the whole and
// of each stage of restoring, and of the matrix product's variants. See bench/README.md.
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "bench_cache.h"
#include "codec/chunk_decoder.h"
#include "codec/encode_request.h"
#include "codec/picture_coder.h"
#include "transform/basis_product.h"

namespace {

using namespace kvcodec;
using namespace kvcodec::bench;

struct Figures {
  double values = 0, tokens = 0, bytes = 0, finer = 0, noise = 0, chunks = 0;
  double encode = 0, decode = 0, load = 0, restore = 0, scatter = 0;  // seconds, one thread
};

// The codes of a tier, as pictures hold them, and how often each component has each.
struct Codes {
  std::vector<uint8_t> samples;
  std::vector<std::vector<std::array<uint32_t, 256>>> counts;  // [group][component]
  double picture_bytes = 0;

  void add(const DecodedChunk& chunk, const ChunkInfo& info) {
    counts.resize(chunk.header.groups.size());
    for (size_t g = 0; g < counts.size(); ++g) {
      counts[g].resize(chunk.header.groups[g].components);
      const LiveSamples live(chunk.groups[g], chunk.header, chunk.contents);
      for (uint32_t row = 0; row < chunk.header.groups[g].live_rows; ++row) {
        const uint8_t* at = live.at(row);
        samples.insert(samples.end(), at, at + chunk.header.tokens);
        for (uint32_t t = 0; t < chunk.header.tokens; ++t) ++counts[g][row][at[t]];
      }
    }
    for (const PictureInfo& picture : info.pictures)
      picture_bytes += static_cast<double>(picture.bytes);
  }
  // Bits of all codes by the order-0 entropy of each component, over all chunks; tables cost
  // nothing. Rows that are not live in a chunk are zeros there.
  double entropy(double tokens) const {
    double bits = 0;
    for (const auto& group : counts) {
      for (const auto& component : group) {
        double seen = 0;
        for (uint32_t n : component) seen += n;
        for (size_t sample = 0; sample < component.size(); ++sample) {
          const double n = component[sample] + (sample == 128 ? tokens - seen : 0);
          if (n > 0) bits -= n * std::log2(n / tokens);
        }
      }
    }
    return bits;
  }
};

void time_chunk(const Settings& settings, const Cache& cache, TokenRange range,
                const EncodeOptions& options, Figures& f, Codes& codes) {
  ChunkId id;
  id.first_token = range.first;
  std::vector<std::byte> object;
  f.encode += seconds(Clock::processor, settings.repeat, [&] {
    object = value_or_fail(encode_chunk({cache.memory, &cache.geometry}, range, id, options));
  });
  DecodeOptions decode;
  decode.threads = 1;
  decode.profile = options.profile;
  Cache restored{cache.geometry, std::vector<std::byte>(cache.memory.size())};
  f.decode += seconds(Clock::processor, settings.repeat, [&] {
    value_or_fail(decode_chunk(object, {restored.memory, &restored.geometry}, range.first, decode));
  });
  f.load += seconds(Clock::processor, settings.repeat, [&] {
    value_or_fail(decode_pictures(object, value_or_fail(read_whole(object, decode)), decode));
  });
  const DecodedChunk chunk =
      value_or_fail(decode_pictures(object, value_or_fail(read_whole(object, decode)), decode));
  for (size_t unit = 0; unit < restore_units(chunk); ++unit) {
    f.restore += seconds(Clock::processor, settings.repeat, [&] { restore_unit(chunk, unit); });
    if (chunk.panels.empty()) continue;
    const std::vector<std::byte> rows = restore_unit(chunk, unit);
    const Panel& panel = chunk.panels[unit];
    const GroupPlan& plan = chunk.groups[panel.group];
    f.scatter += seconds(Clock::processor, settings.repeat, [&] {
      layout::scatter_rows({restored.memory, &restored.geometry}, plan.kind, plan.layers,
                           {range.first + panel.tokens.first, panel.tokens.count}, rows.data());
    });
  }
  const ChunkInfo info = value_or_fail(read_chunk_info(object));
  if (!chunk.panels.empty()) codes.add(chunk, info);
  f.values += static_cast<double>(info.values());
  f.tokens += info.tokens;
  f.bytes += static_cast<double>(info.object_bytes);
  f.finer += info.tier != options.tier;
  double layers = 0, noise = 0;
  for (const GroupDistortion& group : info.distortions) {
    layers += group.layers;
    noise += group.layers * double{group.noise};
  }
  f.noise += layers == 0 ? 0 : noise / layers;
  f.chunks += 1;
}

void report_tier(Tier tier, const Figures& f) {
  const auto mb = [&](double time) { return f.values * 2 / time / 1e6; };
  fmt::print(
      "{:<9} {:.3f} bits a value, {:.1f} x smaller than 16 bits, noise {:.4f}, {} of {} chunks "
      "finer\n",
      tier_name(tier), 8 * f.bytes / f.values, 2 * f.values / f.bytes, f.noise / f.chunks, f.finer,
      f.chunks);
  fmt::print(
      "  one thread: encode {:.1f} MB/s, decode {:.1f} MB/s = {:.0f} tokens/s; of it pictures "
      "{:.0f} MB/s, restore {:.0f} MB/s, scatter {:.0f} MB/s\n",
      mb(f.encode), mb(f.decode), f.tokens / f.decode, mb(f.load), mb(f.restore), mb(f.scatter));
}

// Synthesis of one panel of the largest group.
void report_products(const Settings& settings, const Profile& profile) {
  const ProfileGroup* group = &profile.groups()[0];
  for (const ProfileGroup& other : profile.groups())
    if (other.basis.size() > group->basis.size()) group = &other;
  std::vector<float> y(size_t{group->components} * kPanelTokens);
  std::vector<float> x(group->mean.size() * kPanelTokens);
  transform::Product product;
  product.rows = group->mean.size();
  product.columns = kPanelTokens;
  product.depth = group->components;
  product.start = group->mean.data();
  product.a = group->basis.data();
  product.a_row = 1;
  product.a_depth = group->mean.size();
  product.b = y.data();
  product.out = x.data();
  product.b_row = product.out_row = kPanelTokens;
  const double operations = 2.0 * double(product.rows) * double(product.depth) * kPanelTokens;
  for (const uint32_t percent : {2, 5, 10, 20, 30, 40, 50, 100}) {
    for (size_t i = 0; i < y.size(); ++i) y[i] = i * 2654435761u % 100 < percent ? 0.5f : 0.0f;
    fmt::print("product of {} x {} x {}, {} % not zero:", product.rows, product.depth,
               product.columns, percent);
    for (const transform::ProductOps& variant : transform::product_variants().subspan(1)) {
      const double time =
          seconds(Clock::processor, settings.repeat * 3, [&] { variant.multiply(product); });
      fmt::print(" {} {:.2f} ms ({:.1f} GFLOP/s with zeros)", variant.name, time * 1e3,
                 operations / time / 1e9);
    }
    fmt::print("\n");
  }
}

void run(const Settings& settings) {
  if (settings.profile.empty()) fail("--profile FILE is needed");
  const Profile profile = value_or_fail(Profile::load(settings.profile));
  const Cache cache = load_cache(settings);
  report_products(settings, profile);
  for (Tier tier : kCalibratedTiers) {
    EncodeOptions options;
    options.tier = tier;
    options.profile = &profile;
    options.threads = 1;
    options.verify = false;
    Figures f;
    Codes codes;
    const uint32_t chunk = std::min(settings.chunk, cache.geometry.tokens);
    for (uint32_t first = 0; first + chunk <= cache.geometry.tokens;
         first += chunk * settings.stride)
      time_chunk(settings, cache, {first, chunk}, options, f, codes);
    report_tier(tier, f);
    fmt::print(
        "  pictures {:.4f} bits a value, order-0 entropy a component {:.4f}: {:+.1f} %; {} codes\n",
        8 * codes.picture_bytes / f.values, codes.entropy(f.tokens) / f.values,
        100 * (8 * codes.picture_bytes / codes.entropy(f.tokens) - 1), codes.samples.size());
    if (settings.codes.empty()) continue;
    std::ofstream file(settings.codes + "." + tier_name(tier), std::ios::binary);
    file.write(reinterpret_cast<const char*>(codes.samples.data()),
               static_cast<std::streamsize>(codes.samples.size()));
    if (!file) fail(settings.codes + ": cannot be written");
  }
}

constexpr const char* kUsage =
    "calibrated_bench --profile FILE --keys FILE --values FILE --layers N --heads N --dim N\n"
    "                 [--repeat N] [--chunk TOKENS] [--every N-TH CHUNK] [--codes FILE]\n"
    "--codes writes the codes of each tier, FILE.TIER, for other coders.\n"
    "Caches are f16, [layer][token][head][dim].\n";

}  // namespace

int main(int argc, char** argv) {
  run(parse_settings(argc, argv, kUsage));
  return 0;
}
