// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "adaptive_flags.h"
#include "clock.h"
#include "kvcodec/llama.h"
#include "model.h"
#include "output.h"

namespace kvcodec::tools {

namespace {

Result<std::string> read_text(const std::string& path) {
  KVCODEC_TRY(const std::vector<std::byte> bytes, read_file(path));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<LlamaEngine> open_engine(const ModelArgs& args) {
  LlamaOptions options;
  options.threads = args.threads;
  return LlamaEngine::open(args.model, options);
}

Status check_profile(const LlamaEngine& engine, const Profile* profile) {
  if (profile == nullptr) return ok_status();
  KVCODEC_CHECK(profile->check_shape(engine.shape()));
  const Digest& weights = profile->fields().weights;
  if (weights == Digest{} || weights == engine.weights_digest()) return ok_status();
  return Error{ErrorCode::invalid_argument, "the profile is of another model: weights: expected " +
                                                to_hex(weights) + " as in the profile, found " +
                                                to_hex(engine.weights_digest())};
}

// A chunk that was faulty is written again, so that the next reader has it.
Status mend(Store& store, const LlamaEngine& engine, const ModelArgs& args, const Digest& ns,
            std::span<const int32_t> tokens, const AnswerArgs& answer) {
  KVCODEC_TRY(const LlamaKv kv, engine.export_kv());
  PublishOptions options;
  KVCODEC_TRY(const Rendition rendition, parse_rendition(answer.rendition));
  options.encode.tier = rendition.tier;
  options.encode.profile = answer.profile;
  options.encode.rope = engine.rope();
  options.encode.threads = args.threads;
  options.chunk_tokens = args.chunk_tokens;
  options.replace = true;
  KVCODEC_TRY(const PublishReport report, publish_prefix(store, ns, tokens, kv.source(), options));
  (void)report;
  return ok_status();
}

}  // namespace

Result<ModelPublish> publish_text(Store& store, const ModelArgs& args, EncodeOptions options) {
  KVCODEC_TRY(LlamaEngine engine, open_engine(args));
  KVCODEC_TRY(const std::string text, read_text(args.text));
  KVCODEC_TRY(const std::vector<int32_t> tokens, engine.tokenize(text));
  KVCODEC_CHECK(check_profile(engine, options.profile));
  ModelPublish result;
  result.ns = namespace_digest(engine.namespace_fields(args.salt));
  result.tokens = tokens;
  const size_t whole = tokens.size() / args.chunk_tokens * args.chunk_tokens;
  if (whole == 0) return result;
  const auto start = Clock::now();
  KVCODEC_CHECK(engine.prefill(std::span(tokens).first(whole), progress_bar("prefill")));
  result.prefill_seconds = seconds_since(start);
  KVCODEC_TRY(const LlamaKv kv, engine.export_kv());
  PublishOptions publish;
  publish.encode = std::move(options);
  publish.encode.rope = engine.rope();
  publish.chunk_tokens = args.chunk_tokens;
  publish.replace = args.replace;
  publish.progress = progress_bar("publish");
  KVCODEC_TRY(result.reports,
              publish_all(store, result.ns, tokens, kv.source(), args.renditions, publish));
  return result;
}

Result<Answer> fetch_and_answer(Store& store, const ModelArgs& args, const AnswerArgs& answer) {
  KVCODEC_TRY(LlamaEngine engine, open_engine(args));
  KVCODEC_TRY(const std::string text, read_text(args.text));
  KVCODEC_TRY(std::vector<int32_t> tokens, engine.tokenize(text));
  // The prompt is tokenised apart, so that the text's tokens are those that were published.
  LlamaTokenizeOptions no_special;
  no_special.add_special = false;
  KVCODEC_TRY(const std::vector<int32_t> prompt, engine.tokenize(answer.prompt, no_special));
  tokens.insert(tokens.end(), prompt.begin(), prompt.end());
  if (tokens.empty()) return Error{ErrorCode::invalid_argument, args.text + ": no tokens"};

  KVCODEC_CHECK(check_profile(engine, answer.profile));
  Answer result;
  result.prompt_tokens = static_cast<uint32_t>(tokens.size());
  const Digest ns = namespace_digest(engine.namespace_fields(args.salt));
  const auto start = Clock::now();
  FetchOptions fetch;
  fetch.rendition = answer.rendition;
  fetch.profile = answer.profile;
  fetch.lowest_tier = answer.lowest_tier;
  fetch.chunk_tokens = args.chunk_tokens;
  fetch.max_tokens = result.prompt_tokens - 1;  // one token at least is computed, for its logits
  fetch.threads = args.threads;
  fetch.progress = progress_bar("fetch");
  uint32_t matched = fetch.max_tokens / args.chunk_tokens * args.chunk_tokens;
  if (answer.adaptive != nullptr) {
    answer.adaptive->options().chunk_tokens = args.chunk_tokens;
    answer.adaptive->options().threads = args.threads;
  } else {
    KVCODEC_TRY(const uint32_t present,
                match_prefix(store, ns, tokens, answer.rendition, args.chunk_tokens));
    matched = std::min(matched, present);
  }
  fetch.max_tokens = matched;
  uint32_t restored = 0;
  if (matched > 0) {
    KVCODEC_TRY(LlamaKv kv, engine.prepare_restore(matched));
    if (answer.adaptive != nullptr) {
      KVCODEC_TRY(result.fetch,
                  answer.adaptive->fetch(store, ns, std::span(tokens).first(matched), kv.target()));
    } else {
      KVCODEC_TRY(result.fetch, fetch_prefix(store, ns, tokens, kv.target(), fetch));
    }
    const Status committed = engine.commit_restore(std::move(kv), result.fetch.tokens_restored);
    // Where the engine refuses the state, everything is recomputed: the answer stays right.
    if (!committed.ok()) result.fetch.stopped_by = committed.error();
    restored = engine.position();
  }
  result.computed_tokens = result.prompt_tokens - restored;
  KVCODEC_CHECK(engine.prefill(std::span(tokens).subspan(restored), progress_bar("prefill")));
  const auto first_token = [&](int32_t) {
    if (result.ttft_seconds == 0) result.ttft_seconds = seconds_since(start);
    return true;
  };
  KVCODEC_TRY(result.tokens, engine.greedy_decode(answer.max_tokens, first_token));
  if (result.ttft_seconds == 0) result.ttft_seconds = seconds_since(start);
  KVCODEC_TRY(result.text, engine.detokenize(result.tokens));
  if (answer.adaptive == nullptr && result.fetch.stopped_by &&
      result.fetch.stopped_by->code == ErrorCode::corrupt) {
    KVCODEC_CHECK(mend(store, engine, args, ns, std::span(tokens).first(matched), answer));
  }
  return result;
}

}  // namespace kvcodec::tools
