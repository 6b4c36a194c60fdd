// SPDX-License-Identifier: Apache-2.0
// fetch: a prefix from a store into a file, or into a model that then answers.
#include <fmt/format.h>

#include "adaptive_flags.h"
#include "commands.h"
#include "model.h"
#include "options.h"
#include "output.h"
#include "prefix_options.h"
#include "tensor_file.h"

namespace kvcodec::tools {

namespace {

using nlohmann::json;

struct FetchArgs {
  StoreFlags store;
  ModelArgs model;
  AnswerArgs answer;
  ProfileFlag profile;
  std::string floor = tier_name(Tier::small);
  double max_kl = 0;
  AdaptiveFlags adaptive;
  std::string ns, tokens, out;
  double mbps = 0;
  bool json = false;
};

json fetch_json(const FetchReport& r, const AdaptiveRun* run) {
  json value = {{"tokens_restored", r.tokens_restored}, {"chunks", r.chunks},
                {"object_bytes", r.object_bytes},       {"transfer_seconds", r.transfer_seconds},
                {"decode_seconds", r.decode_seconds},   {"seconds", r.seconds}};
  if (r.stopped_by) {
    value["stopped_by"] = {{"error", error_code_name(r.stopped_by->code)},
                           {"message", r.stopped_by->message}};
  }
  if (run != nullptr) value.update(run->json());
  return value;
}

void print_fetch(const FetchReport& r, const AdaptiveRun* run) {
  fmt::print(
      "{} tokens in {} chunks restored, {} in {:.2f} s (transfer {:.2f} s, decode {:.2f} s)\n",
      r.tokens_restored, r.chunks, human_bytes(r.object_bytes), r.seconds, r.transfer_seconds,
      r.decode_seconds);
  if (run != nullptr) fmt::print("{}\n", run->text());
  if (r.stopped_by) {
    fmt::print("stopped by {}: {}\n", error_code_name(r.stopped_by->code), r.stopped_by->message);
  }
}

Status run_answer(Store& store, const FetchArgs& args, const AnswerArgs& how) {
  KVCODEC_TRY(const Answer answer, fetch_and_answer(store, args.model, how));
  if (how.adaptive != nullptr) KVCODEC_CHECK(how.adaptive->write_files());
  if (args.json) {
    json value = fetch_json(answer.fetch, how.adaptive);
    value["prompt_tokens"] = answer.prompt_tokens;
    value["computed_tokens"] = answer.computed_tokens;
    value["ttft_seconds"] = answer.ttft_seconds;
    value["answer_tokens"] = answer.tokens;
    value["answer"] = answer.text;
    print_json(value);
    return ok_status();
  }
  print_fetch(answer.fetch, how.adaptive);
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

// What the store has of a prefix, and the shape of its cache.
struct Found {
  uint32_t tokens = 0;
  KvShape shape;
};
Result<Found> find_prefix(Store& store, const Digest& ns, std::span<const int32_t> tokens,
                          const FetchArgs& args, const AnswerArgs& how) {
  const uint32_t chunk_tokens = args.model.chunk_tokens;
  Found found;
  std::string rendition = how.rendition;
  if (how.adaptive != nullptr) {
    KVCODEC_TRY(const PrefixCatalog catalog, read_catalog(store, ns, tokens, chunk_tokens));
    found.tokens = static_cast<uint32_t>(catalog.chunks() * chunk_tokens);
    rendition = "listed";
    for (size_t r = 0; r < catalog.renditions.size(); ++r)
      if (catalog.chunks() > 0 && catalog.bytes[0][r] > 0) rendition = catalog.renditions[r];
  } else {
    KVCODEC_TRY(found.tokens, match_prefix(store, ns, tokens, rendition, chunk_tokens));
  }
  if (found.tokens == 0) {
    return Error{ErrorCode::not_found, fmt::format("no {} chunk of these {} tokens in namespace {}",
                                                   rendition, tokens.size(), args.ns)};
  }
  const auto first = chunk_key(ns, tokens.first(chunk_tokens));
  KVCODEC_TRY(const std::vector<std::byte> object,
              get_object(store, object_name(ns, first, rendition), Limits{}.max_object_bytes));
  KVCODEC_TRY(const ChunkInfo info, read_chunk_info(object));
  found.shape = info.shape;
  return found;
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
  if (how.adaptive != nullptr) how.adaptive->options().chunk_tokens = args.model.chunk_tokens;
  if (how.adaptive != nullptr) how.adaptive->options().threads = args.model.threads;
  KVCODEC_TRY(const Found found, find_prefix(store, ns, tokens, args, how));
  KvFile kv;
  tokens.resize(found.tokens);
  kv.tokens = std::move(tokens);
  kv.geometry = KvGeometry::contiguous(found.shape, found.tokens);
  kv.memory.resize(kv.geometry.contiguous_bytes());
  const KvTarget target{kv.memory, &kv.geometry};
  const auto fetch = [&]() -> Result<FetchReport> {
    if (how.adaptive == nullptr) return fetch_prefix(store, ns, kv.tokens, target, options);
    KVCODEC_TRY(AdaptiveReport adaptive, how.adaptive->fetch(store, ns, kv.tokens, target));
    return FetchReport(std::move(adaptive));
  };
  KVCODEC_TRY(const FetchReport report, fetch());
  if (how.adaptive != nullptr) KVCODEC_CHECK(how.adaptive->write_files());
  if (report.stopped_by) return *report.stopped_by;
  kv.metadata["namespace"] = args.ns;
  KVCODEC_CHECK(write_kv_file(args.out, kv));
  if (args.json) {
    print_json(fetch_json(report, how.adaptive));
  } else {
    print_fetch(report, how.adaptive);
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
  std::unique_ptr<AdaptiveRun> run;
  if (args.adaptive.adaptive) {
    KVCODEC_TRY(run, AdaptiveRun::create(args.adaptive, profile.get(), how.lowest_tier));
    how.adaptive = run.get();
  }
  return by_model ? run_answer(link, args, how) : run_fetch_file(link, args, how);
}

}  // namespace

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
  args->adaptive.add_to(*command);
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
      "  kvcodec fetch --store file:///var/cache/kv --namespace HEX --tokens ids.json -o kv.npy\n"
      "  kvcodec fetch --store file:///var/cache/kv --model m.gguf --text doc.txt --adaptive \\\n"
      "                --deadline 5 --trace fetch.json");
  command->callback(
      [args, &outcome] { outcome.exit_code = exit_code(run_fetch(*args), args->json); });
}

}  // namespace kvcodec::tools
