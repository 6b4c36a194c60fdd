// SPDX-License-Identifier: Apache-2.0
// Size and speed of chunks on real KV: tiers, stages, the split of tier exact, the step of int8.
// See bench/README.md. Every chunk is also decoded and compared.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "bench_cache.h"
#include "codec/chunk_decoder.h"
#include "codec/chunk_encoder.h"
#include "codec/encode_request.h"
#include "codec/exact_tier.h"
#include "codec/int8_tier.h"
#include "codec/picture_coder.h"
#include "transform/float_convert.h"

namespace {

using namespace kvcodec;
using namespace kvcodec::bench;

struct Totals {
  double values = 0, object_bytes = 0, escapes = 0, error = 0, signal = 0;
  double kind_bytes[2] = {0, 0};
  double encode = 0, decode = 0;  // seconds
  double gather = 0, transform = 0, pictures = 0, load = 0, restore = 0, scatter = 0;

  double raw_mb_per_second(double time) const { return values * 2 / time / 1e6; }
  double bits() const { return 8 * object_bytes / values; }
};

// Energy of the elements of a chunk and of what coding changed in them.
void add_error(const Cache& before, const Cache& after, TokenRange range, Totals& totals) {
  const size_t n = before.geometry.shape.channels(KvKind::key);
  std::vector<float> a(n), b(n);
  for (KvKind kind : kKvKinds)
    for (uint32_t layer = 0; layer < before.geometry.shape.layers; ++layer)
      for (uint32_t token = range.first; token < range.first + range.count; ++token) {
        const size_t at = before.geometry.element_offset(kind, layer, token, 0, 0);
        transform::to_floats(DType::f16, before.memory.data() + at, n, a.data());
        transform::to_floats(DType::f16, after.memory.data() + at, n, b.data());
        for (size_t i = 0; i < n; ++i) {
          totals.signal += double{a[i]} * a[i];
          totals.error += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
        }
      }
}

// The stages of encoding and decoding one after the other, on one thread.
void time_stages(const Settings& settings, const Cache& cache, TokenRange range,
                 const EncodeOptions& options, const EncoderTuning& tuning, Totals& totals) {
  ChunkId id;
  id.first_token = range.first;
  const KvSource source{cache.memory, &cache.geometry};
  format::Header header = start_header(cache.geometry.shape, range.count, id, options, tuning);
  const std::vector<GroupPlan> groups = plan_groups(header);
  std::vector<PictureContent> contents(header.pictures.size());
  const bool exact = options.tier == Tier::exact;
  const transform::RotationTable turns(exact ? Rope{} : header.rope, range.first, range.count);
  for (const GroupPlan& group : groups) {
    std::vector<std::byte> rows(size_t{group.rows.rows} * range.count * 2);
    totals.gather += seconds(Clock::processor, settings.repeat, [&] {
      layout::gather_rows(source, group.kind, group.layers, range, rows.data());
    });
    totals.transform += seconds(Clock::processor, settings.repeat, [&] {
      std::vector<format::Escape> escapes;
      if (exact)
        split_group(group, rows.data(), header, contents);
      else
        value_or_fail(quantise_group(group, rows.data(), turns, tuning, header, contents, escapes));
    });
  }
  totals.pictures += seconds(Clock::processor, 1, [&] {
    const PicturesToStore all{header.tokens, header.pictures, contents};
    value_or_fail(store_pictures(std::span(&all, 1), 1));
  });

  const auto object = value_or_fail(encode_chunk_tuned(source, range, id, options, tuning));
  DecodeOptions one;
  one.threads = 1;
  totals.load += seconds(Clock::processor, settings.repeat, [&] {
    value_or_fail(decode_pictures(object, value_or_fail(read_whole(object, one)), one));
  });
  const DecodedChunk chunk =
      value_or_fail(decode_pictures(object, value_or_fail(read_whole(object, one)), one));
  Cache restored{cache.geometry, std::vector<std::byte>(cache.memory.size())};
  for (size_t i = 0; i < chunk.groups.size(); ++i) {
    const GroupPlan& group = chunk.groups[i];
    std::vector<std::byte> rows;
    totals.restore +=
        seconds(Clock::processor, settings.repeat, [&] { rows = restore_unit(chunk, i); });
    totals.scatter += seconds(Clock::processor, settings.repeat, [&] {
      layout::scatter_rows({restored.memory, &restored.geometry}, group.kind, group.layers, range,
                           rows.data());
    });
  }
}

Totals measure(const Settings& settings, const Cache& cache, Tier tier, const EncoderTuning& tuning,
               int threads, bool stages) {
  EncodeOptions options;
  options.tier = tier;
  options.threads = threads;
  options.verify = false;
  options.rope = value_or_fail(
      make_rope(Rope::Style::interleaved, cache.geometry.shape.key_dim, settings.rope_base));
  DecodeOptions decode;
  decode.threads = threads;
  const Clock clock = threads == 1 ? Clock::processor : Clock::wall;
  Totals totals;
  const uint32_t chunk = std::min(settings.chunk, cache.geometry.tokens);
  Cache restored{cache.geometry, std::vector<std::byte>(cache.memory.size())};
  for (uint32_t first = 0; first + chunk <= cache.geometry.tokens;
       first += chunk * settings.stride) {
    const TokenRange range{first, chunk};
    ChunkId id;
    id.first_token = first;
    std::vector<std::byte> object;
    totals.encode += seconds(clock, settings.repeat, [&] {
      object = value_or_fail(
          encode_chunk_tuned({cache.memory, &cache.geometry}, range, id, options, tuning));
    });
    totals.decode += seconds(clock, settings.repeat, [&] {
      value_or_fail(decode_chunk(object, {restored.memory, &restored.geometry}, first, decode));
    });
    const ChunkInfo info = value_or_fail(read_chunk_info(object));
    totals.values += static_cast<double>(info.values());
    totals.object_bytes += static_cast<double>(info.object_bytes);
    totals.escapes += static_cast<double>(info.escapes);
    for (const PictureInfo& picture : info.pictures)
      totals.kind_bytes[static_cast<size_t>(picture.kind)] += static_cast<double>(picture.bytes);
    const double error_before = totals.error;
    add_error(cache, restored, range, totals);
    if (tier == Tier::exact && totals.error != error_before) fail("tier exact changed a value");
    if (stages) time_stages(settings, cache, range, options, tuning, totals);
  }
  if (totals.values == 0) fail("no whole chunk in the input");
  return totals;
}

// Rows of a table, for people or as JSON.
class Report {
 public:
  explicit Report(bool json) : json_(json) {
    if (json_) fmt::print("[");
  }
  ~Report() {
    if (json_) fmt::print("\n]\n");
  }
  void section(const char* title) {
    title_ = title;
    if (!json_) fmt::print("\n{}\n", title);
  }
  void row(const std::string& name, const std::vector<std::pair<const char*, double>>& cells) {
    if (json_) {
      fmt::print("{}\n {{\"table\": \"{}\", \"row\": \"{}\"", first_ ? "" : ",", title_, name);
      for (const auto& [key, value] : cells) fmt::print(", \"{}\": {:.6g}", key, value);
      fmt::print("}}");
    } else {
      fmt::print("  {:<28}", name);
      for (const auto& [key, value] : cells) fmt::print(" {} {:.5g} ", key, value);
      fmt::print("\n");
    }
    first_ = false;
    std::fflush(stdout);
  }

 private:
  const bool json_;
  bool first_ = true;
  const char* title_ = "";
};

void report_sizes(Report& report, const std::string& name, const Totals& t) {
  report.row(name, {{"bits_per_value", t.bits()},
                    {"key_bits", 16 * t.kind_bytes[0] / t.values},
                    {"value_bits", 16 * t.kind_bytes[1] / t.values},
                    {"escapes_per_value", t.escapes / t.values},
                    {"relative_error", std::sqrt(t.error / t.signal)},
                    {"encode_mb_s", t.raw_mb_per_second(t.encode)},
                    {"decode_mb_s", t.raw_mb_per_second(t.decode)}});
}

void run(const Settings& settings) {
  const Cache cache = load_cache(settings);
  Report report(settings.json);
  report.section("tiers");
  for (Tier tier : {Tier::exact, Tier::int8}) {
    const Totals one = measure(settings, cache, tier, {}, 1, true);
    report_sizes(report, fmt::format("{}, 1 thread", tier_name(tier)), one);
    report.row(fmt::format("{}, stages", tier_name(tier)),
               {{"gather_mb_s", one.raw_mb_per_second(one.gather)},
                {"transform_mb_s", one.raw_mb_per_second(one.transform)},
                {"pictures_mb_s", one.raw_mb_per_second(one.pictures)},
                {"load_mb_s", one.raw_mb_per_second(one.load)},
                {"restore_mb_s", one.raw_mb_per_second(one.restore)},
                {"scatter_mb_s", one.raw_mb_per_second(one.scatter)}});
    report_sizes(report, fmt::format("{}, {} threads", tier_name(tier), settings.threads),
                 measure(settings, cache, tier, {}, settings.threads, false));
  }
  report.section("split of tier exact, 1 thread");
  for (uint8_t k = 0; k <= 3; ++k) {
    EncoderTuning tuning;
    tuning.symbol_mantissa_bits[0] = tuning.symbol_mantissa_bits[1] = k;
    report_sizes(report, fmt::format("{} mantissa bits", k),
                 measure(settings, cache, Tier::exact, tuning, 1, false));
  }
  report.section("step of tier int8, 1 thread");
  const std::pair<const char*, transform::StepRule> rules[] = {
      {"peak/127", {127, 0}},
      {"rms/8", {0, 8}},
      {"rms/12", {0, 12}},
      {"rms/16", {0, 16}},
      {"rms/20", {0, 20}},
      {"min(peak/127, rms/12)", {127, 12}},
      {"min(peak/127, rms/16)", {127, 16}}};
  for (const auto& [name, rule] : rules) {
    EncoderTuning tuning;
    tuning.step_rule = rule;
    report_sizes(report, name, measure(settings, cache, Tier::int8, tuning, 1, false));
  }
  EncoderTuning unsorted;
  unsorted.sort_codes = false;
  report_sizes(report, "default, rows unsorted",
               measure(settings, cache, Tier::int8, unsorted, 1, false));
}

constexpr const char* kUsage =
    "codec_bench [--json] [--threads N] [--repeat N] [--chunk TOKENS] [--every N-TH CHUNK]\n"
    "            [--keys FILE --values FILE --layers N --heads N --dim N --rope-base B]\n"
    "Without files: the test fixture. Files are f16, [layer][token][head][dim].\n";

}  // namespace

int main(int argc, char** argv) {
  run(parse_settings(argc, argv, kUsage));
  return 0;
}
