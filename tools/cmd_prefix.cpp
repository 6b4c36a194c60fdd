// SPDX-License-Identifier: Apache-2.0
// publish: prefixes into a store, from files or through a model.
#include <fmt/format.h>

#include "commands.h"
#include "model.h"
#include "options.h"
#include "output.h"
#include "prefix_options.h"
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
  std::vector<std::string> renditions;
  std::string tokens_out;
  bool json = false;
};

Result<std::vector<std::string>> complete_renditions(const PublishArgs& args,
                                                     const Profile* profile) {
  std::vector<std::string> whole;
  for (const std::string& name : args.renditions) {
    KVCODEC_TRY(std::string completed, complete_rendition(name, profile));
    whole.push_back(std::move(completed));
  }
  return whole;
}

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
  result.tokens = kv.tokens;
  PublishOptions publish;
  publish.encode = options;
  publish.chunk_tokens = args.model.chunk_tokens;
  publish.replace = args.model.replace;
  publish.progress = progress_bar("publish");
  KVCODEC_TRY(const auto renditions, complete_renditions(args, profile.get()));
  KVCODEC_TRY(result.reports,
              publish_all(store, result.ns, kv.tokens, kv.source(), renditions, publish));
  return result;
}

// Of all renditions: chunks and bytes of objects add up, tokens are the same.
PublishReport summed(const std::vector<PublishReport>& reports) {
  PublishReport sum;
  for (const PublishReport& r : reports) {
    sum.chunks += r.chunks;
    sum.written += r.written;
    sum.finer += r.finer;
    sum.tokens = r.tokens;
    sum.raw_bytes = r.raw_bytes;
    sum.object_bytes += r.object_bytes;
    sum.encode_seconds += r.encode_seconds;
    sum.store_seconds += r.store_seconds;
  }
  return sum;
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
  ModelArgs model = args.model;
  if (args.kv.empty()) {
    KVCODEC_TRY(profile, args.encode.profile.load());
    // The model's own rotation is used; --rope is for files that do not know theirs.
    KVCODEC_TRY(options, args.encode.resolve(UINT32_MAX, profile.get()));
    KVCODEC_TRY(model.renditions, complete_renditions(args, profile.get()));
  }
  KVCODEC_TRY(const ModelPublish done,
              args.kv.empty() ? publish_text(*store, model, options) : publish_file(*store, args));
  if (!args.tokens_out.empty()) {
    const std::string ids = json(done.tokens).dump();
    KVCODEC_CHECK(write_file(args.tokens_out, std::as_bytes(std::span(ids))));
  }
  // A tiered store that writes back has objects that only this process knows.
  KVCODEC_CHECK(store->flush(std::chrono::hours(1)));
  const PublishReport r = summed(done.reports);
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

}  // namespace

Result<std::vector<PublishReport>> publish_all(Store& store, const Digest& ns,
                                               std::span<const int32_t> tokens,
                                               const KvSource& source,
                                               const std::vector<std::string>& renditions,
                                               const PublishOptions& options) {
  if (!renditions.empty())
    return publish_renditions(store, ns, tokens, source, renditions, options);
  KVCODEC_TRY(PublishReport report, publish_prefix(store, ns, tokens, source, options));
  return std::vector<PublishReport>{std::move(report)};
}

void add_publish(CLI::App& app, Outcome& outcome) {
  auto* command = app.add_subcommand("publish", "Store the KV cache of a prefix");
  auto args = std::make_shared<PublishArgs>();
  args->store.add_to(*command);
  args->store.add_bound_to(*command);
  add_model_options(*command, args->model);
  command->add_option("--kv", args->kv, "instead of a model: .safetensors with 'tokens'");
  command->add_option("--model-name", args->model_name, "with --kv: part of the namespace");
  args->encode.add_to(*command);
  command
      ->add_option("--renditions", args->renditions,
                   "instead of one tier, several, for fetch --adaptive: exact,int8-h512,small; -hN "
                   "bounds the pictures' height")
      ->delimiter(',')
      ->excludes("--tier");
  command->add_option("--tokens-out", args->tokens_out,
                      "write the token ids, a JSON array, for fetch --tokens");
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

}  // namespace kvcodec::tools
