// SPDX-License-Identifier: Apache-2.0
// bench: what this machine does with this cache.
#include <fmt/format.h>

#include <algorithm>

#include "clock.h"
#include "commands.h"
#include "options.h"
#include "output.h"
#include "tensor_file.h"

namespace kvcodec::tools {

namespace {

using nlohmann::json;

struct BenchArgs {
  std::string in;
  EncodeFlags encode;
  uint32_t chunk_tokens = 256;
  int repeat = 3;
  bool json = false;
};

struct Figures {
  uint64_t raw_bytes = 0, object_bytes = 0;
  double encode_seconds = 0, decode_seconds = 0;  // best of the repeats
};

// All whole chunks of the file, or the file as one chunk where it is shorter.
Result<Figures> measure(const KvFile& kv, const EncodeOptions& options, const BenchArgs& args) {
  const uint32_t length = std::min(args.chunk_tokens, kv.geometry.tokens);
  const uint32_t chunks = length == 0 ? 0 : kv.geometry.tokens / length;
  const size_t token_bytes = kv.geometry.shape.token_bytes();
  Figures best;
  KvGeometry target = KvGeometry::contiguous(kv.geometry.shape, length);
  std::vector<std::byte> restored(target.contiguous_bytes());
  for (int round = 0; round < args.repeat; ++round) {
    Figures now;
    for (uint32_t i = 0; i < chunks; ++i) {
      const TokenRange range{i * length, length};
      const ChunkId id{{}, {}, range.first};
      auto start = Clock::now();
      KVCODEC_TRY(const std::vector<std::byte> object,
                  encode_chunk(kv.source(), range, id, options));
      now.encode_seconds += seconds_since(start);
      DecodeOptions decode;
      decode.threads = options.threads;
      decode.profile = options.profile;
      start = Clock::now();
      KVCODEC_CHECK(decode_chunk(object, {restored, &target}, 0, decode));
      now.decode_seconds += seconds_since(start);
      now.raw_bytes += token_bytes * length;
      now.object_bytes += object.size();
    }
    if (round == 0) best = now;
    best.encode_seconds = std::min(best.encode_seconds, now.encode_seconds);
    best.decode_seconds = std::min(best.decode_seconds, now.decode_seconds);
  }
  return best;
}

Status run_bench(const BenchArgs& args) {
  KVCODEC_TRY(const KvFile kv, read_kv_file(args.in));
  if (kv.geometry.tokens == 0) {
    return Error{ErrorCode::invalid_argument, args.in + ": holds no tokens"};
  }
  Table table(
      {"tier", "raw bytes", "bytes", "bits/value", "smaller", "encode MB/s", "decode MB/s"});
  json results = json::array();
  KVCODEC_TRY(const Rope rope, parse_rope(args.encode.rope, kv.geometry.shape.key_dim));
  KVCODEC_TRY(const auto profile, args.encode.profile.load(&kv.geometry.shape, rope));
  std::vector<Tier> tiers = {Tier::exact, Tier::int8};
  if (profile != nullptr)
    tiers.insert(tiers.end(), std::begin(kCalibratedTiers), std::end(kCalibratedTiers));
  for (Tier tier : tiers) {
    KVCODEC_TRY(EncodeOptions options,
                args.encode.resolve(kv.geometry.shape.key_dim, profile.get()));
    options.tier = tier;
    options.verify = false;
    KVCODEC_TRY(const Figures f, measure(kv, options, args));
    const auto raw = static_cast<double>(f.raw_bytes), bytes = static_cast<double>(f.object_bytes);
    const double bits = 8 * bytes * static_cast<double>(dtype_bytes(kv.geometry.shape.dtype)) / raw;
    const double encode = raw / f.encode_seconds / 1e6, decode = raw / f.decode_seconds / 1e6;
    table.add({tier_name(tier), fmt::format("{}", f.raw_bytes), fmt::format("{}", f.object_bytes),
               fmt::format("{:.3f}", bits), fmt::format("{:.2f}x", raw / bytes),
               fmt::format("{:.1f}", encode), fmt::format("{:.1f}", decode)});
    results.push_back({{"tier", tier_name(tier)},
                       {"raw_bytes", f.raw_bytes},
                       {"object_bytes", f.object_bytes},
                       {"bits_per_value", bits},
                       {"encode_mb_per_second", encode},
                       {"decode_mb_per_second", decode}});
  }
  if (args.json) {
    print_json({{"file", args.in}, {"chunk_tokens", args.chunk_tokens}, {"results", results}});
  } else {
    fmt::print("{}\nMB/s are of uncompressed KV, best of {}\n", table.text(), args.repeat);
  }
  return ok_status();
}

}  // namespace

void add_bench(CLI::App& app, Outcome& outcome) {
  auto* command = app.add_subcommand("bench", "Size and speed of every tier on a KV cache file");
  auto args = std::make_shared<BenchArgs>();
  command->add_option("IN", args->in, ".safetensors or .npy")->required();
  args->encode.add_to(*command);
  command->add_option("--chunk-tokens", args->chunk_tokens, "tokens a chunk")
      ->capture_default_str()
      ->check(CLI::Range(1, 8192));
  command->add_option("--repeat", args->repeat, "rounds; the best counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_flag("--json", args->json, "as JSON");
  command->footer("Example: kvcodec bench kv.safetensors --rope neox:500000 --threads 1");
  command->callback(
      [args, &outcome] { outcome.exit_code = exit_code(run_bench(*args), args->json); });
}

}  // namespace kvcodec::tools
