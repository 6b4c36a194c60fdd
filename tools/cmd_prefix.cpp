// SPDX-License-Identifier: Apache-2.0
// publish, fetch: prefixes in a store, from files or through a model.
#include <fmt/format.h>

#include "commands.h"
#include "model.h"
#include "options.h"
#include "output.h"
#include "tensor_file.h"

namespace kvcodec::tools {

namespace {

using nlohmann::json;

struct PublishArgs {
  StoreFlags store;
  EncodeFlags encode;
  ModelArgs model;
  std::string kv;
  std::string model_name;
  bool json = false;
};

// Token ids are in the file: without them a cache cannot be found again.
Result<ModelPublish> publish_file(Store& store, const PublishArgs& args) {
  KVCODEC_TRY(const KvFile kv, read_kv_file(args.kv));
  if (kv.tokens.empty()) {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("{}: no tensor 'tokens' (I32 of [tokens]) names the token ids", args.kv)};
  }
  KVCODEC_TRY(const Rope rope, parse_rope(args.encode.rope, kv.geometry.shape.key_dim));
  KVCODEC_TRY(const auto profile, args.encode.profile.load(&kv.geometry.shape, rope));
  KVCODEC_TRY(const EncodeOptions options,
              args.encode.resolve(kv.geometry.shape.key_dim, profile.get()));
  NamespaceFields fields;
  fields.model = args.model_name;
  fields.shape = kv.geometry.shape;
  fields.rope = profile != nullptr ? profile->rope() : options.rope;
  fields.salt = args.model.salt;
  ModelPublish result;
  result.ns = namespace_digest(fields);
  PublishOptions publish;
  publish.encode = options;
  publish.chunk_tokens = args.model.chunk_tokens;
  publish.replace = args.model.replace;
  publish.progress = progress_bar("publish");
  KVCODEC_TRY(result.report, publish_prefix(store, result.ns, kv.tokens, kv.source(), publish));
  return result;
}

Status run_publish(const PublishArgs& args) {
  if (args.kv.empty() == args.model.model.empty() ||
      args.model.model.empty() != args.model.text.empty()) {
    return Error{ErrorCode::invalid_argument,
                 "publish: expected either --kv FILE, or --model FILE and --text FILE"};
  }
  KVCODEC_TRY(const auto store, args.store.open());
  EncodeOptions options;
  std::shared_ptr<const Profile> profile;
  if (args.kv.empty()) {
    KVCODEC_TRY(profile, args.encode.profile.load());
    // The model's own rotation is used; --rope is for files that do not know theirs.
    KVCODEC_TRY(options, args.encode.resolve(UINT32_MAX, profile.get()));
  }
  KVCODEC_TRY(const ModelPublish done, args.kv.empty() ? publish_text(*store, args.model, options)
                                                       : publish_file(*store, args));
  // A tiered store that writes back has objects that only this process knows.
  KVCODEC_CHECK(store->flush(std::chrono::hours(1)));
  const PublishReport& r = done.report;
  if (args.json) {
    print_json({{"namespace", to_hex(done.ns)},
                {"chunks", r.chunks},
                {"written", r.written},
                {"finer", r.finer},
                {"tokens", r.tokens},
                {"raw_bytes", r.raw_bytes},
                {"object_bytes", r.object_bytes},
                {"prefill_seconds", done.prefill_seconds},
                {"encode_seconds", r.encode_seconds},
                {"store_seconds", r.store_seconds}});
    return ok_status();
  }
  fmt::print("namespace {}\n", to_hex(done.ns));
  fmt::print(
      "{} chunks of {} tokens, {} new: {} -> {}; prefill {:.2f} s, encode {:.2f} s, "
      "store {:.2f} s\n",
      r.chunks, args.model.chunk_tokens, r.written, human_bytes(r.raw_bytes),
      human_bytes(r.object_bytes), done.prefill_seconds, r.encode_seconds, r.store_seconds);
  if (r.finer > 0)
    fmt::print("{} chunks are unlike the profile's texts and were coded at a finer tier\n",
               r.finer);
  return ok_status();
}

struct FetchArgs {
  StoreFlags store;
  ModelArgs model;
  AnswerArgs answer;
  ProfileFlag profile;
  std::string floor = tier_name(Tier::small);
  double max_kl = 0;
  std::string ns, tokens, out;
  double mbps = 0;
  bool json = false;
};

json fetch_json(const FetchReport& r) {
  json value = {{"tokens_restored", r.tokens_restored}, {"chunks", r.chunks},
                {"object_bytes", r.object_bytes},       {"transfer_seconds", r.transfer_seconds},
                {"decode_seconds", r.decode_seconds},   {"seconds", r.seconds}};
  if (r.stopped_by) {
    value["stopped_by"] = {{"error", error_code_name(r.stopped_by->code)},
                           {"message", r.stopped_by->message}};
  }
  return value;
}

void print_fetch(const FetchReport& r) {
  fmt::print(
      "{} tokens in {} chunks restored, {} in {:.2f} s (transfer {:.2f} s, decode {:.2f} s)\n",
      r.tokens_restored, r.chunks, human_bytes(r.object_bytes), r.seconds, r.transfer_seconds,
      r.decode_seconds);
  if (r.stopped_by) {
    fmt::print("stopped by {}: {}\n", error_code_name(r.stopped_by->code), r.stopped_by->message);
  }
}

Status run_answer(Store& store, const FetchArgs& args, const AnswerArgs& how) {
  KVCODEC_TRY(const Answer answer, fetch_and_answer(store, args.model, how));
  if (args.json) {
    json value = fetch_json(answer.fetch);
    value["prompt_tokens"] = answer.prompt_tokens;
    value["computed_tokens"] = answer.computed_tokens;
    value["ttft_seconds"] = answer.ttft_seconds;
    value["answer_tokens"] = answer.tokens;
    value["answer"] = answer.text;
    print_json(value);
    return ok_status();
  }
  print_fetch(answer.fetch);
  fmt::print("{} of {} prompt tokens computed, first token after {:.2f} s\n\n{}\n",
             answer.computed_tokens, answer.prompt_tokens, answer.ttft_seconds, answer.text);
  return ok_status();
}

// The token ids of a .safetensors KV file, or of a JSON array.
Result<std::vector<int32_t>> read_token_ids(const std::string& path) {
  if (path.ends_with(".safetensors")) {
    KVCODEC_TRY(KvFile kv, read_kv_file(path));
    return std::move(kv.tokens);
  }
  KVCODEC_TRY(const std::vector<std::byte> bytes, read_file(path));
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const json ids = json::parse(text, text + bytes.size(), nullptr, false);
  std::vector<int32_t> tokens;
  for (size_t i = 0; ids.is_array() && i < ids.size(); ++i) {
    if (!ids[i].is_number_integer()) break;
    tokens.push_back(ids[i].get<int32_t>());
  }
  if (!ids.is_array() || tokens.size() != ids.size()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: expected a JSON array of token ids", path)};
  }
  return tokens;
}

Status run_fetch_file(Store& store, const FetchArgs& args, const AnswerArgs& how) {
  KVCODEC_TRY(const Digest ns, digest_from_hex(args.ns));
  KVCODEC_TRY(std::vector<int32_t> tokens, read_token_ids(args.tokens));
  FetchOptions options;
  options.rendition = how.rendition;
  options.profile = how.profile;
  options.lowest_tier = how.lowest_tier;
  options.chunk_tokens = args.model.chunk_tokens;
  options.threads = args.model.threads;
  options.progress = progress_bar("fetch");
  KVCODEC_TRY(const uint32_t matched,
              match_prefix(store, ns, tokens, options.rendition, options.chunk_tokens));
  if (matched == 0) {
    return Error{ErrorCode::not_found, fmt::format("no {} chunk of these {} tokens in namespace {}",
                                                   options.rendition, tokens.size(), args.ns)};
  }
  const auto first = chunk_key(ns, std::span(tokens).first(options.chunk_tokens));
  KVCODEC_TRY(const std::vector<std::byte> object,
              get_object(store, object_name(ns, first, options.rendition),
                         options.limits.max_object_bytes));
  KVCODEC_TRY(const ChunkInfo info, read_chunk_info(object));
  KvFile kv;
  tokens.resize(matched);
  kv.tokens = std::move(tokens);
  kv.geometry = KvGeometry::contiguous(info.shape, matched);
  kv.memory.resize(kv.geometry.contiguous_bytes());
  KVCODEC_TRY(const FetchReport report,
              fetch_prefix(store, ns, kv.tokens, {kv.memory, &kv.geometry}, options));
  if (report.stopped_by) return *report.stopped_by;
  kv.metadata["namespace"] = args.ns;
  KVCODEC_CHECK(write_kv_file(args.out, kv));
  if (args.json) {
    print_json(fetch_json(report));
  } else {
    print_fetch(report);
  }
  return ok_status();
}

Status run_fetch(const FetchArgs& args) {
  const bool by_model = !args.model.model.empty() && !args.model.text.empty();
  const bool by_tokens = !args.ns.empty() && !args.tokens.empty() && !args.out.empty();
  if (by_model == by_tokens) {
    return Error{ErrorCode::invalid_argument,
                 "fetch: expected either --model and --text, or --namespace, --tokens and --out"};
  }
  KVCODEC_TRY(const auto store, args.store.open());
  const auto limited = args.mbps > 0 ? limit_bandwidth(*store, args.mbps * 1e6) : nullptr;
  Store& link = limited ? *limited : *store;
  KVCODEC_TRY(const auto profile, args.profile.load());
  AnswerArgs how = args.answer;
  how.profile = profile.get();
  KVCODEC_TRY(how.rendition, complete_rendition(how.rendition, profile.get()));
  KVCODEC_TRY(how.lowest_tier, tier_from_name(args.floor));
  if (args.max_kl > 0) {
    if (profile == nullptr)
      return Error{ErrorCode::invalid_argument, "--max-kl needs --profile, which knows the KL"};
    KVCODEC_TRY(const Tier within, profile->tier_within(args.max_kl));
    how.lowest_tier = std::min(how.lowest_tier, within);
  }
  return by_model ? run_answer(link, args, how) : run_fetch_file(link, args, how);
}

void add_model_options(CLI::App& command, ModelArgs& args) {
  command.add_option("--model", args.model, "GGUF model");
  command.add_option("--text", args.text, "file with the shared prefix");
  command.add_option("--salt", args.salt, "tenant; separates caches");
  command.add_option("--chunk-tokens", args.chunk_tokens, "tokens a chunk")
      ->capture_default_str()
      ->check(CLI::Range(1, 8192));
}

}  // namespace

void add_publish(CLI::App& app, Outcome& outcome) {
  auto* command = app.add_subcommand("publish", "Store the KV cache of a prefix");
  auto args = std::make_shared<PublishArgs>();
  args->store.add_to(*command);
  args->store.add_bound_to(*command);
  add_model_options(*command, args->model);
  command->add_option("--kv", args->kv, "instead of a model: .safetensors with 'tokens'");
  command->add_option("--model-name", args->model_name, "with --kv: part of the namespace");
  args->encode.add_to(*command);
  command->add_flag("--replace", args->model.replace, "write chunks that are present too");
  command->add_flag("--json", args->json, "figures as JSON");
  command->footer(
      "Examples:\n"
      "  kvcodec publish --store file:///var/cache/kv --model m.gguf --text doc.txt --tier int8\n"
      "  kvcodec publish --store file:///var/cache/kv --kv kv.safetensors --model-name my-model");
  command->callback([args, &outcome] {
    args->model.threads = args->encode.threads;
    outcome.exit_code = exit_code(run_publish(*args), args->json);
  });
}

void add_fetch(CLI::App& app, Outcome& outcome) {
  auto* command = app.add_subcommand("fetch", "Restore the KV cache of a prefix");
  auto args = std::make_shared<FetchArgs>();
  args->store.add_to(*command);
  add_model_options(*command, args->model);
  command
      ->add_option("--rendition", args->answer.rendition,
                   "exact, int8, or with --profile high, balanced or small")
      ->capture_default_str();
  args->profile.add_to(*command);
  command->add_option("--floor", args->floor, "lowest tier that may be used")
      ->capture_default_str();
  command->add_option("--max-kl", args->max_kl, "largest expected KL that may be used, a token");
  command->add_option("--prompt", args->answer.prompt, "follows the text");
  command->add_option("-n,--max-tokens", args->answer.max_tokens, "length of the answer")
      ->capture_default_str();
  command->add_option("--namespace", args->ns, "without a model: what publish printed");
  command->add_option("--tokens", args->tokens, "without a model: JSON array or .safetensors");
  command->add_option("-o,--out", args->out, "without a model: .safetensors or .npy");
  command->add_option("--mbps", args->mbps, "as if through a link of so many Mb/s")
      ->check(CLI::PositiveNumber);
  command->add_option("--threads", args->model.threads, "threads; 0: all cores")
      ->capture_default_str();
  command->add_flag("--json", args->json, "figures as JSON");
  command->footer(
      "Examples:\n"
      "  kvcodec fetch --store file:///var/cache/kv --model m.gguf --text doc.txt \\\n"
      "                --prompt 'What is this about?' --mbps 100\n"
      "  kvcodec fetch --store file:///var/cache/kv --namespace HEX --tokens ids.json -o kv.npy");
  command->callback(
      [args, &outcome] { outcome.exit_code = exit_code(run_fetch(*args), args->json); });
}

}  // namespace kvcodec::tools
