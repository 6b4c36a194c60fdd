// SPDX-License-Identifier: Apache-2.0
// encode, decode, info, verify: chunks as files.
#include <fmt/format.h>

#include <optional>

#include "clock.h"
#include "commands.h"
#include "kvcodec/store.h"
#include "options.h"
#include "output.h"
#include "tensor_file.h"

namespace kvcodec::tools {

namespace {

using nlohmann::json;

json rope_json(const Rope& rope) {
  static constexpr const char* kStyles[] = {"none", "interleaved", "neox"};
  return {{"style", kStyles[static_cast<int>(rope.style)]}, {"rotary_dims", rope.rotary_dims}};
}

json info_json(const ChunkInfo& info) {
  json pictures = json::array();
  for (const PictureInfo& p : info.pictures) {
    pictures.push_back({{"kind", kv_kind_name(p.kind)},
                        {"plane", p.plane},
                        {"coding", p.coding},
                        {"first_row", p.first_row},
                        {"rows", p.rows},
                        {"width", p.width},
                        {"height", p.height},
                        {"offset", p.offset},
                        {"bytes", p.bytes}});
  }
  json groups = json::array();
  for (const GroupDistortion& g : info.distortions) {
    groups.push_back({{"kind", kv_kind_name(g.kind)},
                      {"first_layer", g.first_layer},
                      {"layers", g.layers},
                      {"components", g.components},
                      {"live_rows", g.live_rows},
                      {"step", g.step},
                      {"noise", g.noise},
                      {"relative_error", g.relative_error}});
  }
  return {{"format_version", info.format_version},
          {"tier", tier_name(info.tier)},
          {"namespace", to_hex(info.id.ns)},
          {"key", to_hex(info.id.key)},
          {"profile", to_hex(info.profile)},
          {"first_token", info.id.first_token},
          {"tokens", info.tokens},
          {"layers", info.shape.layers},
          {"kv_heads", info.shape.kv_heads},
          {"key_dim", info.shape.key_dim},
          {"value_dim", info.shape.value_dim},
          {"dtype", dtype_name(info.shape.dtype)},
          {"rope", rope_json(info.rope)},
          {"sink_tokens", info.sink_tokens},
          {"escapes", info.escapes},
          {"header_bytes", info.header_bytes},
          {"object_bytes", info.object_bytes},
          {"values", info.values()},
          {"bits_per_value", info.bits_per_value()},
          {"groups", groups},
          {"pictures", pictures}};
}

void print_groups(const ChunkInfo& info) {
  fmt::print("profile     {}\n", to_hex(info.profile));
  Table table({"kind", "layers", "components", "live", "step", "noise", "relative error"});
  for (const GroupDistortion& g : info.distortions) {
    table.add({kv_kind_name(g.kind), fmt::format("{}..{}", g.first_layer, g.first_layer + g.layers),
               fmt::format("{}", g.components), fmt::format("{}", g.live_rows),
               fmt::format("{:.4g}", g.step), fmt::format("{:.4g}", g.noise),
               fmt::format("{:.4f}", g.relative_error)});
  }
  fmt::print("\n{}", table.text());
}

void print_info(const ChunkInfo& info) {
  const KvShape& s = info.shape;
  fmt::print("format      version {}, tier {}, {}\n", info.format_version, tier_name(info.tier),
             dtype_name(s.dtype));
  fmt::print("namespace   {}\nkey         {}\n", to_hex(info.id.ns), to_hex(info.id.key));
  fmt::print("tokens      {} from position {}, {} of them exact sinks\n", info.tokens,
             info.id.first_token, info.sink_tokens);
  fmt::print("shape       {} layers, {} KV heads, key dim {}, value dim {}\n", s.layers, s.kv_heads,
             s.key_dim, s.value_dim);
  const json rope = rope_json(info.rope);
  fmt::print("rotation    {}, {} dims\n", rope["style"].get<std::string>(), info.rope.rotary_dims);
  fmt::print("size        {} ({} header), {:.3f} bits a value, {:.2f} times smaller than {}\n",
             human_bytes(info.object_bytes), human_bytes(info.header_bytes), info.bits_per_value(),
             8.0 * static_cast<double>(dtype_bytes(s.dtype)) / info.bits_per_value(),
             dtype_name(s.dtype));
  if (info.escapes > 0) fmt::print("escapes     {}\n", info.escapes);
  if (is_calibrated(info.tier)) print_groups(info);
  Table table({"kind", "plane", "coding", "rows", "picture", "offset", "bytes"});
  for (const PictureInfo& p : info.pictures) {
    table.add({kv_kind_name(p.kind), fmt::format("{}", p.plane), p.coding,
               fmt::format("{}..{}", p.first_row, p.first_row + p.rows),
               p.width == 0 ? "-" : fmt::format("{}x{}", p.width, p.height),
               fmt::format("{}", p.offset), fmt::format("{}", p.bytes)});
  }
  fmt::print("\n{}", table.text());
}

// The identity of a chunk that comes from a file: by its token ids where the file has them, else
// by its bytes.
ChunkId file_chunk_id(const KvFile& kv, const Rope& rope, uint32_t first_token) {
  NamespaceFields fields;
  const auto model = kv.metadata.find("model");
  if (model != kv.metadata.end()) fields.model = model->second;
  fields.shape = kv.geometry.shape;
  fields.rope = rope;
  ChunkId id;
  id.ns = namespace_digest(fields);
  id.key = kv.tokens.empty() ? sha256(kv.memory) : chunk_key(id.ns, kv.tokens);
  id.first_token = first_token;
  return id;
}

struct EncodeArgs {
  std::string in, out;
  uint32_t first_token = 0;
  EncodeFlags encode;
  bool json = false;
};

Status run_encode(const EncodeArgs& args) {
  KVCODEC_TRY(const KvFile kv, read_kv_file(args.in));
  KVCODEC_TRY(const Rope rope, parse_rope(args.encode.rope, kv.geometry.shape.key_dim));
  KVCODEC_TRY(const auto profile, args.encode.profile.load(&kv.geometry.shape, rope));
  KVCODEC_TRY(const EncodeOptions options,
              args.encode.resolve(kv.geometry.shape.key_dim, profile.get()));
  const auto start = Clock::now();
  KVCODEC_TRY(const std::vector<std::byte> object,
              encode_chunk(kv.source(), {0, kv.geometry.tokens},
                           file_chunk_id(kv, options.rope, args.first_token), options));
  const double seconds = seconds_since(start);
  KVCODEC_CHECK(write_file(args.out, object));
  KVCODEC_TRY(const ChunkInfo info, read_chunk_info(object));
  const size_t raw = kv.geometry.contiguous_bytes();
  if (args.json) {
    print_json({{"out", args.out},
                {"raw_bytes", raw},
                {"object_bytes", object.size()},
                {"bits_per_value", info.bits_per_value()},
                {"seconds", seconds}});
  } else {
    fmt::print("{}: {} tokens, {} -> {}, {:.3f} bits a value, {:.2f} s\n", args.out,
               kv.geometry.tokens, human_bytes(raw), human_bytes(object.size()),
               info.bits_per_value(), seconds);
  }
  return ok_status();
}

struct DecodeArgs {
  std::string in, out;
  ProfileFlag profile;
  std::optional<uint32_t> position;
  int threads = 0;
  bool json = false;
};

Status run_decode(const DecodeArgs& args) {
  KVCODEC_TRY(const std::vector<std::byte> object, read_file(args.in));
  KVCODEC_TRY(const ChunkInfo info, read_chunk_info(object));
  KvFile kv;
  kv.geometry = KvGeometry::contiguous(info.shape, info.tokens);
  kv.memory.resize(kv.geometry.contiguous_bytes());
  kv.metadata["namespace"] = to_hex(info.id.ns);
  kv.metadata["first_token"] = std::to_string(args.position.value_or(info.id.first_token));
  KVCODEC_TRY(const auto profile, args.profile.load(&info.shape, info.rope));
  DecodeOptions options;
  options.profile = profile.get();
  options.position = args.position;
  options.threads = args.threads;
  const auto start = Clock::now();
  KVCODEC_CHECK(decode_chunk(object, {kv.memory, &kv.geometry}, 0, options));
  const double seconds = seconds_since(start);
  KVCODEC_CHECK(write_kv_file(args.out, kv));
  if (args.json) {
    print_json({{"out", args.out},
                {"raw_bytes", kv.memory.size()},
                {"object_bytes", object.size()},
                {"seconds", seconds}});
  } else {
    fmt::print("{}: {} tokens, {} -> {}, {:.2f} s\n", args.out, info.tokens,
               human_bytes(object.size()), human_bytes(kv.memory.size()), seconds);
  }
  return ok_status();
}

Status run_info(const std::string& path, bool as_json) {
  KVCODEC_TRY(const std::vector<std::byte> object, read_file(path));
  auto info = read_chunk_info(object);
  if (!info.ok()) {
    return Error{info.error().code, fmt::format("{}: {}", path, info.error().message)};
  }
  if (as_json) {
    print_json(info_json(*info));
  } else {
    print_info(*info);
  }
  return ok_status();
}

int run_verify(const std::vector<std::string>& paths, const ProfileFlag& flag, int threads,
               bool as_json) {
  const auto profile = flag.load();
  if (!profile.ok()) return report_error(profile.error(), as_json);
  json results = json::array();
  size_t bad = 0;
  for (const std::string& path : paths) {
    auto object = read_file(path);
    DecodeOptions options;
    options.threads = threads;
    options.profile = profile->get();
    const Status status =
        object.ok() ? verify_chunk(*object, options) : Status(std::move(object.error()));
    bad += !status.ok();
    const std::string why =
        status.ok()
            ? "ok"
            : fmt::format("{}: {}", error_code_name(status.error().code), status.error().message);
    results.push_back({{"path", path}, {"ok", status.ok()}, {"message", why}});
    if (!as_json) fmt::print("{}: {}\n", path, why);
  }
  if (as_json) print_json({{"checked", paths.size()}, {"bad", bad}, {"results", results}});
  return bad == 0 ? 0 : kCheckFailedExit;
}

}  // namespace

void add_encode(CLI::App& app, Outcome& outcome) {
  auto* command = app.add_subcommand("encode", "A KV cache file into one chunk");
  auto args = std::make_shared<EncodeArgs>();
  command->add_option("IN", args->in, ".safetensors or .npy; shape and type come from the file")
      ->required();
  command->add_option("-o,--out", args->out, "the chunk, usually .kvc")->required();
  command->add_option("--first-token", args->first_token, "position of its first token")
      ->capture_default_str();
  args->encode.add_to(*command);
  command->add_flag("--json", args->json, "figures as JSON");
  command->footer(
      "Example: kvcodec encode kv.safetensors -o kv.kvc --tier int8 --rope neox:500000");
  command->callback(
      [args, &outcome] { outcome.exit_code = exit_code(run_encode(*args), args->json); });
}

void add_decode(CLI::App& app, Outcome& outcome) {
  auto* command = app.add_subcommand("decode", "A chunk into a KV cache file");
  auto args = std::make_shared<DecodeArgs>();
  command->add_option("IN", args->in, "the chunk")->required();
  command->add_option("-o,--out", args->out, ".safetensors or .npy")->required();
  args->profile.add_to(*command);
  command->add_option("--position", args->position,
                      "keys as if the first token had this position; not for tier exact");
  command->add_option("--threads", args->threads, "threads; 0: all cores")->capture_default_str();
  command->add_flag("--json", args->json, "figures as JSON");
  command->footer("Example: kvcodec decode kv.kvc -o kv.npy");
  command->callback(
      [args, &outcome] { outcome.exit_code = exit_code(run_decode(*args), args->json); });
}

void add_info(CLI::App& app, Outcome& outcome) {
  auto* command = app.add_subcommand("info", "What a chunk holds");
  auto path = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  command->add_option("IN", *path, "the chunk")->required();
  command->add_flag("--json", *as_json, "as JSON");
  command->footer("Example: kvcodec info kv.kvc");
  command->callback([path, as_json, &outcome] {
    outcome.exit_code = exit_code(run_info(*path, *as_json), *as_json);
  });
}

void add_verify(CLI::App& app, Outcome& outcome) {
  auto* command = app.add_subcommand("verify", "Check chunks, decoding included");
  auto paths = std::make_shared<std::vector<std::string>>();
  auto profile = std::make_shared<ProfileFlag>();
  auto threads = std::make_shared<int>(0);
  auto as_json = std::make_shared<bool>(false);
  command->add_option("IN", *paths, "chunks")->required();
  profile->add_to(*command);
  command->add_option("--threads", *threads, "threads; 0: all cores")->capture_default_str();
  command->add_flag("--json", *as_json, "as JSON");
  command->footer("Example: kvcodec verify *.kvc    (exit code 1 where one is bad)");
  command->callback([paths, profile, threads, as_json, &outcome] {
    outcome.exit_code = run_verify(*paths, *profile, *threads, *as_json);
  });
}

}  // namespace kvcodec::tools
