// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "clock.h"
#include "demo.h"
#include "kvcodec/llama.h"
#include "output.h"
#include "raw_prefix.h"

namespace kvcodec::tools {

namespace {

using nlohmann::json;

// The engine, the prompt and how much of it is shared: equal in every process.
struct Request {
  LlamaEngine engine;
  Digest ns;
  std::vector<int32_t> tokens;  // text, then question
  uint32_t shared = 0;          // leading tokens that are published: whole chunks of the text
};

Result<Request> open_request(const DemoArgs& args) {
  LlamaOptions options;
  options.threads = args.threads;
  options.context_tokens = args.text_tokens + 1024;
  KVCODEC_TRY(LlamaEngine engine, LlamaEngine::open(args.model, options));
  KVCODEC_TRY(const std::vector<std::byte> text, read_file(args.text));
  KVCODEC_TRY(std::vector<int32_t> tokens,
              engine.tokenize({reinterpret_cast<const char*>(text.data()), text.size()}));
  if (tokens.size() < args.text_tokens) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: expected {} tokens, found {}", args.text, args.text_tokens,
                             tokens.size())};
  }
  tokens.resize(args.text_tokens);
  LlamaTokenizeOptions no_special;
  no_special.add_special = false;
  KVCODEC_TRY(const std::vector<int32_t> question, engine.tokenize(args.question, no_special));
  tokens.insert(tokens.end(), question.begin(), question.end());
  const Digest ns = namespace_digest(engine.namespace_fields("demo"));
  const uint32_t shared = args.text_tokens / kDefaultChunkTokens * kDefaultChunkTokens;
  return Request{std::move(engine), ns, std::move(tokens), shared};
}

json publish_json(const PublishReport& report, uint64_t values) {
  return {{"bytes", report.object_bytes},
          {"bits_per_value",
           8.0 * static_cast<double>(report.object_bytes) / static_cast<double>(values)},
          {"encode_seconds", report.encode_seconds},
          {"store_seconds", report.store_seconds}};
}

Result<FetchReport> fetch_by(const std::string& method, Store& store, const Request& request,
                             const KvTarget& target, int threads) {
  const std::span shared(request.tokens.data(), request.shared);
  if (method == "raw") return fetch_raw(store, request.ns, shared, target, kDefaultChunkTokens);
  FetchOptions options;
  options.rendition = method;
  options.threads = threads;
  KVCODEC_TRY(FetchReport report, fetch_prefix(store, request.ns, shared, target, options));
  if (report.stopped_by) return *report.stopped_by;
  return report;
}

// Restores the shared prefix by the method; `prefill` has nothing to restore.
Result<json> restore(const DemoArgs& args, Store& store, Request& request) {
  if (args.method == "prefill") return json::object();
  const auto limited =
      args.mbps > 0 ? limit_bandwidth(store, args.mbps * 1e6) : std::unique_ptr<Store>();
  KVCODEC_TRY(LlamaKv kv, request.engine.prepare_restore(request.shared));
  KVCODEC_TRY(const FetchReport report, fetch_by(args.method, limited ? *limited : store, request,
                                                 kv.target(), args.threads));
  KVCODEC_CHECK(request.engine.commit_restore(std::move(kv), report.tokens_restored));
  const double values = static_cast<double>(report.tokens_restored) *
                        static_cast<double>(request.engine.shape().token_bytes()) /
                        static_cast<double>(dtype_bytes(request.engine.shape().dtype));
  return json{{"bytes", report.object_bytes},
              {"bits_per_value", 8.0 * static_cast<double>(report.object_bytes) / values},
              {"transfer_seconds", report.transfer_seconds},
              {"decode_seconds", report.decode_seconds},
              {"fetch_seconds", report.seconds}};
}

int32_t most_likely(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// KL(p || q) of two softmax distributions, in nats.
double kl_divergence(std::span<const float> p, std::span<const float> q) {
  const auto log_sum = [](std::span<const float> x) {
    const double top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (float v : x) sum += std::exp(v - top);
    return top + std::log(sum);
  };
  const double zp = log_sum(p), zq = log_sum(q);
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double lp = p[i] - zp;
    kl += std::exp(lp) * (lp - (q[i] - zq));
  }
  return std::max(0.0, kl);
}

// What the full prefill said: its greedy tokens and the logits each was chosen by.
struct Reference {
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;
};

Status write_reference(const std::string& path, const Reference& reference) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < reference.tokens.size(); ++i) {
    const auto token = std::as_bytes(std::span(&reference.tokens[i], 1));
    const auto logits = std::as_bytes(std::span(reference.logits[i]));
    bytes.insert(bytes.end(), token.begin(), token.end());
    bytes.insert(bytes.end(), logits.begin(), logits.end());
  }
  return write_file(path, bytes);
}

Result<Reference> read_reference(const std::string& path, size_t vocabulary) {
  KVCODEC_TRY(const std::vector<std::byte> bytes, read_file(path));
  const size_t step = 4 + 4 * vocabulary;
  if (bytes.empty() || bytes.size() % step != 0) {
    return Error{ErrorCode::corrupt,
                 fmt::format("{}: {} bytes are no multiple of {}", path, bytes.size(), step)};
  }
  Reference reference;
  for (size_t at = 0; at < bytes.size(); at += step) {
    std::memcpy(&reference.tokens.emplace_back(), bytes.data() + at, 4);
    auto& logits = reference.logits.emplace_back(vocabulary);
    std::memcpy(logits.data(), bytes.data() + at + 4, 4 * vocabulary);
  }
  return reference;
}

// Greedy continuation from the engine's logits; what it says is the reference.
Result<Reference> continue_greedily(LlamaEngine& engine) {
  Reference reference;
  while (reference.tokens.size() < kContinuationTokens) {
    KVCODEC_TRY(reference.logits.emplace_back(), engine.logits());
    reference.tokens.push_back(most_likely(reference.logits.back()));
    KVCODEC_CHECK(engine.prefill(std::span(&reference.tokens.back(), 1)));
  }
  return reference;
}

// Follows the reference and compares at every step. Greedy decoding gives the same continuation
// exactly where every step's choice is the reference's.
Result<json> compare(LlamaEngine& engine, const Reference& reference) {
  double kl = 0;
  size_t agreed = 0;
  bool identical = true;
  for (size_t i = 0; i < reference.tokens.size(); ++i) {
    KVCODEC_TRY(const std::vector<float> logits, engine.logits());
    agreed += most_likely(logits) == reference.tokens[i];
    identical &= std::memcmp(logits.data(), reference.logits[i].data(), 4 * logits.size()) == 0;
    kl += kl_divergence(reference.logits[i], logits);
    KVCODEC_CHECK(engine.prefill(std::span(&reference.tokens[i], 1)));
  }
  const auto steps = static_cast<double>(reference.tokens.size());
  return json{{"same_continuation", agreed == reference.tokens.size()},
              {"agreement", static_cast<double>(agreed) / steps},
              {"logits_identical", identical},
              {"kl", kl / steps}};
}

}  // namespace

Result<json> demo_publish(const DemoArgs& args) {
  KVCODEC_TRY(Request request, open_request(args));
  KVCODEC_TRY(const auto store, open_store("file://" + args.store));
  const std::span shared(request.tokens.data(), request.shared);
  const auto start = Clock::now();
  KVCODEC_CHECK(request.engine.prefill(shared, progress_bar("publisher: prefill")));
  const double prefill_seconds = seconds_since(start);
  KVCODEC_TRY(const LlamaKv kv, request.engine.export_kv());
  const KvShape& shape = request.engine.shape();
  const uint64_t values = request.shared * shape.token_bytes() / dtype_bytes(shape.dtype);
  json result = {{"tokens", request.shared}, {"prefill_seconds", prefill_seconds}};
  KVCODEC_TRY(const uint64_t raw_bytes,
              publish_raw(*store, request.ns, shared, kv.source(), kDefaultChunkTokens));
  result["raw"] = {{"bytes", raw_bytes}};
  for (Tier tier : {Tier::exact, Tier::int8}) {
    PublishOptions options;
    options.encode.tier = tier;
    options.encode.rope = request.engine.rope();
    options.encode.threads = args.threads;
    options.progress = progress_bar(fmt::format("publisher: {}", tier_name(tier)));
    KVCODEC_TRY(const PublishReport report,
                publish_prefix(*store, request.ns, shared, kv.source(), options));
    result[tier_name(tier)] = publish_json(report, values);
  }
  return result;
}

Result<json> demo_answer(const DemoArgs& args) {
  KVCODEC_TRY(Request request, open_request(args));
  KVCODEC_TRY(const auto store, open_store("file://" + args.store));
  const auto start = Clock::now();
  KVCODEC_TRY(json result, restore(args, *store, request));
  const uint32_t restored = request.engine.position();
  const auto compute = Clock::now();
  KVCODEC_CHECK(request.engine.prefill(std::span(request.tokens).subspan(restored)));
  KVCODEC_TRY(const std::vector<float> logits, request.engine.logits());
  const int32_t first = most_likely(logits);
  result["ttft_seconds"] = seconds_since(start);
  result["compute_seconds"] = seconds_since(compute);
  result["restored_tokens"] = restored;
  result["computed_tokens"] = request.tokens.size() - restored;
  result["first_token"] = first;
  if (args.method == "prefill") {
    KVCODEC_TRY(const Reference reference, continue_greedily(request.engine));
    KVCODEC_CHECK(write_reference(args.reference, reference));
    KVCODEC_TRY(result["answer"], request.engine.detokenize(reference.tokens));
  } else {
    KVCODEC_TRY(const Reference reference, read_reference(args.reference, logits.size()));
    KVCODEC_TRY(const json compared, compare(request.engine, reference));
    result.update(compared);
  }
  return result;
}

}  // namespace kvcodec::tools
