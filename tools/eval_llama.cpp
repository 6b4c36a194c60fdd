// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "eval_cache.h"
#include "eval_cases.h"
#include "kvcodec/llama.h"
#include "output.h"

namespace kvcodec::tools {

namespace {

constexpr uint32_t kLogitTokens = 32;  // 6 MB of logits for a vocabulary of 49,152

class Evaluation {
 public:
  Evaluation(const EvalArgs& args, LlamaEngine& engine)
      : args_(args), engine_(engine), cache_(args.cache) {}

  Status run(const std::vector<EvalPrefix>& prefixes, EvalReport& report) {
    size_t total = 0, done = 0;
    for (const EvalPrefix& prefix : prefixes) total += prefix.cases.size() * args_.methods.size();
    const auto progress = progress_bar("eval");
    for (const EvalPrefix& prefix : prefixes) {
      KVCODEC_TRY(const KvFile kv, compute_prefix(prefix, report));
      for (const EvalCase& one : prefix.cases) {
        KVCODEC_CHECK(begin_case(prefix, one, kv));
        if (!args_.dump.empty()) KVCODEC_CHECK(dump_case(args_.dump, request_));
        for (const EvalMethod& method : args_.methods) {
          KVCODEC_TRY(EvalRow row, score_method(prefix, one, method, report));
          report.rows.push_back(std::move(row));
          if (progress) progress(++done, total);
        }
      }
    }
    return ok_status();
  }

 private:
  // What the KV of these tokens depends on besides them.
  std::string setting() const {
    return fmt::format("{} threads {} batch {} logits {}",
                       to_hex(namespace_digest(engine_.namespace_fields())), engine_.threads(),
                       engine_.batch_tokens(), kLogitTokens);
  }

  Result<KvFile> compute_prefix(const EvalPrefix& prefix, EvalReport& report) {
    const EvalKey key({setting(), "prefix"}, {prefix.tokens});
    if (auto cached = cache_.find_kv(key, engine_.shape(), prefix.tokens)) {
      ++report.prefixes_cached;
      return *std::move(cached);
    }
    engine_.reset();
    KVCODEC_CHECK(engine_.prefill(prefix.tokens, progress_bar("prefill " + prefix.text)));
    KVCODEC_TRY(const LlamaKv kv, engine_.export_kv());
    ++report.prefixes_computed;
    KvFile file;
    file.geometry = KvGeometry::contiguous(engine_.shape(), kv.tokens());
    file.memory.resize(file.geometry.contiguous_bytes());
    copy_tokens(kv.source(), {file.memory, &file.geometry}, kv.tokens());
    file.tokens = prefix.tokens;
    KVCODEC_CHECK(cache_.keep_kv(key, file));
    return file;
  }

  Status begin_case(const EvalPrefix& prefix, const EvalCase& one, const KvFile& kv) {
    request_ = {};
    request_.case_name = one.name;
    request_.source = kv.source();
    request_.tokens = std::span(prefix.tokens).first(one.tokens);
    request_.rope = engine_.rope();
    request_.weights = engine_.weights_digest();
    request_.chunk_tokens = args_.chunk_tokens;
    request_.threads = args_.threads;
    request_.noise_factor = args_.noise_factor;
    request_.sink_tokens = args_.sink_tokens;
    exact_.reset();
    KVCODEC_TRY(LlamaKv whole, engine_.prepare_restore(one.tokens));
    copy_tokens(request_.source, whole.target(), one.tokens);
    exact_digest_ = sha256(whole.source().memory);
    return ok_status();
  }

  // The predictions over the continuation, `kv` being the prefix.
  Result<NextTokens> predict(const EvalCase& one, LlamaKv kv) {
    KVCODEC_CHECK(engine_.commit_restore(std::move(kv), one.tokens));
    NextTokens out;
    Status finite = ok_status();
    const std::span<const int32_t> computed(one.continuation.data(), one.continuation.size() - 1);
    KVCODEC_CHECK(engine_.score(computed, [&](size_t, std::span<const float> logits) {
      if (finite.ok()) finite = out.add(logits);
    }));
    KVCODEC_CHECK(std::move(finite));
    return out;
  }

  Result<EvalRow> score_method(const EvalPrefix& prefix, const EvalCase& one,
                               const EvalMethod& method, EvalReport& report) {
    KVCODEC_TRY(LlamaKv kv, engine_.prepare_restore(one.tokens));
    EvalRow row;
    row.method = method.name;
    row.text = prefix.text;
    row.case_name = one.name;
    row.tokens = one.tokens;
    row.depth = one.depth;
    const KvShape& shape = engine_.shape();
    row.values = uint64_t{one.tokens} * shape.token_bytes() / dtype_bytes(shape.dtype);
    KVCODEC_TRY(row.size, apply_method(method, request_, kv.target()));
    const auto targets = std::span(one.continuation).subspan(one.first_scored + 1);
    row.scored = static_cast<uint32_t>(targets.size());

    const EvalKey key({setting(), "score", fmt::format("first {}", one.first_scored),
                       to_hex(exact_digest_), to_hex(sha256(kv.source().memory))},
                      {request_.tokens, one.continuation});
    if (const auto cached = cache_.find_score(key)) {
      ++report.scores_cached;
      row.score = *cached;
      return row;
    }
    if (!exact_) {
      KVCODEC_TRY(LlamaKv whole, engine_.prepare_restore(one.tokens));
      copy_tokens(request_.source, whole.target(), one.tokens);
      KVCODEC_TRY(exact_, predict(one, std::move(whole)));
    }
    auto predicted = predict(one, std::move(kv));
    if (!predicted.ok()) {
      predicted.error().message =
          fmt::format("method {}, case {}: {}", method.name, one.name, predicted.error().message);
      return std::move(predicted.error());
    }
    ++report.scores_computed;
    row.score = compare_predictions(*exact_, *predicted, one.first_scored, targets);
    KVCODEC_CHECK(cache_.keep_score(key, row.score));
    return row;
  }

  const EvalArgs& args_;
  LlamaEngine& engine_;
  EvalCache cache_;
  EvalRequest request_;
  std::optional<NextTokens> exact_;  // of the case at hand, where a score needed it
  Digest exact_digest_;
};

}  // namespace

Result<EvalReport> evaluate(const EvalArgs& args) {
  LlamaOptions options;
  options.threads = args.threads;
  options.logit_tokens = kLogitTokens;
  const uint32_t longest = *std::max_element(args.lengths.begin(), args.lengths.end());
  // A needle's question and answer are far below 256 tokens.
  options.context_tokens = longest + std::max<uint32_t>(args.continuation + 1, 256);
  KVCODEC_TRY(LlamaEngine engine, LlamaEngine::open(args.model, options));
  const auto tokenize = [&](const std::string& text, bool start) {
    return engine.tokenize(text, {.add_special = start});
  };
  KVCODEC_TRY(const std::vector<EvalPrefix> prefixes, make_prefixes(args, tokenize));
  EvalReport report;
  report.model = engine.model_name();
  report.shape = engine.shape();
  for (const std::string& folder : {args.dump, args.cache}) {
    std::error_code failed;
    if (!folder.empty()) std::filesystem::create_directories(folder, failed);
    if (failed) return Error{ErrorCode::io, fmt::format("{}: {}", folder, failed.message())};
  }
  KVCODEC_CHECK(Evaluation(args, engine).run(prefixes, report));
  return report;
}

}  // namespace kvcodec::tools
