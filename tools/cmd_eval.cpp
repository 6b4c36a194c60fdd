// SPDX-License-Identifier: Apache-2.0
// eval: what methods cost and what they do to a model's predictions.
#include <fmt/format.h>

#include <set>

#include "commands.h"
#include "eval.h"
#include "output.h"

namespace kvcodec::tools {

namespace {

using nlohmann::json;

struct EvalFlags {
  EvalArgs args;
  std::vector<std::string> methods;
  std::string profile;
  bool json = false;
};

Status resolve(EvalFlags& flags) {
  EvalArgs& args = flags.args;
  std::shared_ptr<const Profile> profile;
  if (!flags.profile.empty()) {
    KVCODEC_TRY(Profile loaded, Profile::load(flags.profile));
    profile = std::make_shared<const Profile>(std::move(loaded));
  }
  std::set<std::string> names;
  for (const std::string& text : flags.methods) {
    KVCODEC_TRY(EvalMethod method, parse_eval_method(text, profile));
    if (!names.insert(method.name).second) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("method '{}': another one has the name {}", text, method.name)};
    }
    args.methods.push_back(std::move(method));
  }
  for (double depth : args.needles) {
    if (!(depth >= 0 && depth <= 1)) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("needle at depth {}: expected 0 to 1", depth)};
    }
  }
  if (args.methods.empty() && args.dump.empty()) {
    return Error{ErrorCode::invalid_argument, "eval: expected --methods, or --dump"};
  }
  return ok_status();
}

json row_json(const EvalRow& row) {
  json out = {{"method", row.method},
              {"text", row.text},
              {"case", row.case_name},
              {"tokens", row.tokens},
              {"scored", row.scored},
              {"bits", row.size.bits},
              {"objects", row.size.objects},
              {"finer", row.size.finer},
              {"values", row.values},
              {"bits_per_value", row.bits_per_value()},
              {"kl", row.score.kl},
              {"top1", row.score.top1},
              {"log_prob", row.score.log_prob},
              {"exact_log_prob", row.score.exact_log_prob},
              {"identical", row.score.identical}};
  if (row.depth) {
    out["depth"] = *row.depth;
    out["found"] = row.score.top_is_target;
    out["exact_found"] = row.score.exact_top_is_target;
  }
  return out;
}

json summary_json(const EvalSummary& s) {
  return {{"method", s.method},
          {"tokens", s.tokens},
          {"texts", s.texts},
          {"objects", s.objects},
          {"finer", s.finer},
          {"bits_per_value", s.bits_per_value},
          {"kl", s.kl},
          {"kl_error", s.kl_error},
          {"top1", s.top1},
          {"perplexity", s.perplexity},
          {"exact_perplexity", s.exact_perplexity},
          {"identical", s.identical},
          {"needles", s.needles},
          {"found", s.found},
          {"exact_found", s.exact_found},
          {"needle_log_prob", s.needle_log_prob}};
}

void print_report(const EvalReport& report) {
  fmt::print(
      "{}: {} layers, {} KV heads, {}; prefixes: {} computed, {} cached; scores: {} computed, "
      "{} cached\n\n",
      report.model, report.shape.layers, report.shape.kv_heads, dtype_name(report.shape.dtype),
      report.prefixes_computed, report.prefixes_cached, report.scores_computed,
      report.scores_cached);
  if (report.rows.empty()) return;
  Table table({"method", "tokens", "bits/value", "smaller", "KL", "+-", "top-1", "perplexity",
               "needles", "answer", "finer"});
  const double whole = 8.0 * static_cast<double>(dtype_bytes(report.shape.dtype));
  for (const EvalSummary& s : summarise(report.rows)) {
    const double change = s.texts > 0 ? s.perplexity / s.exact_perplexity - 1 : 0;
    table.add({s.method, fmt::format("{}", s.tokens), fmt::format("{:.3f}", s.bits_per_value),
               fmt::format("{:.2f}x", s.bits_per_value > 0 ? whole / s.bits_per_value : 0),
               s.identical ? "0 (same bits)" : fmt::format("{:.5f}", s.kl),
               fmt::format("{:.5f}", s.kl_error), fmt::format("{:.4f}", s.top1),
               fmt::format("{:+.2f} %", 100 * change),
               fmt::format("{}/{} of {}", s.found, s.exact_found, s.needles),
               fmt::format("{:+.3f}", s.needle_log_prob),
               fmt::format("{}/{}", s.finer, s.objects)});
  }
  fmt::print("{}", table.text());
}

Status run_eval(EvalFlags& flags) {
  KVCODEC_CHECK(resolve(flags));
  KVCODEC_TRY(const EvalReport report, evaluate(flags.args));
  if (!flags.json) {
    print_report(report);
    return ok_status();
  }
  json rows = json::array(), summary = json::array();
  for (const EvalRow& row : report.rows) rows.push_back(row_json(row));
  for (const EvalSummary& s : summarise(report.rows)) summary.push_back(summary_json(s));
  print_json({{"model", report.model},
              {"prefixes_computed", report.prefixes_computed},
              {"prefixes_cached", report.prefixes_cached},
              {"scores_computed", report.scores_computed},
              {"scores_cached", report.scores_cached},
              {"rows", rows},
              {"summary", summary}});
  return ok_status();
}

}  // namespace

void add_eval(CLI::App& app, Outcome& outcome) {
  auto* command = app.add_subcommand(
      "eval", "Measure what tiers and other methods do to a model's predictions");
  auto flags = std::make_shared<EvalFlags>();
  EvalArgs& args = flags->args;
  args.lengths = {512, 1024, 2048};
  command->add_option("--model", args.model, "GGUF model")->required();
  command->add_option("--text", args.texts, "texts, or folders of them")->required();
  command->add_option("--lengths", args.lengths, "tokens of the prefix")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--continuation", args.continuation, "tokens predicted after the prefix")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16));
  command->add_option("--methods", flags->methods, "raw, TIER, TIER=PROFILE, external:NAME=FOLDER")
      ->delimiter(',');
  command->add_option("--profile", flags->profile, "of calibrated tiers that name none");
  command
      ->add_option("--noise-factor", args.noise_factor,
                   "a chunk this many times noisier than its profile expects takes a finer tier; "
                   "0: never")
      ->capture_default_str();
  command->add_option("--sinks", args.sink_tokens, "leading tokens kept exactly, but in tier exact")
      ->capture_default_str();
  command
      ->add_option("--needles", args.needles,
                   "depths, 0 to 1, of a fact planted in the longest prefix and asked for")
      ->delimiter(',');
  command->add_option("--dump", args.dump, "folder: write the exact KV of every case");
  command->add_option("--cache", args.cache, "folder: keep prefixes and scores between runs");
  command->add_option("--chunk-tokens", args.chunk_tokens, "tokens a chunk")
      ->capture_default_str()
      ->check(CLI::Range(1, 8192));
  command->add_option("--threads", args.threads, "threads; 0: all cores")->capture_default_str();
  command->add_flag("--json", flags->json, "figures as JSON");
  command->footer(
      "KL is KL(exact || method) of the next token, in nats, mean over the continuation and the\n"
      "texts; +- its standard error over the texts. needles a/b of n: answers retrieved greedily\n"
      "with the method and with the exact cache; answer: change of their log-probability;\n"
      "finer: chunks that were coded at a finer tier than asked for.\n"
      "Examples:\n"
      "  kvcodec eval --model m.gguf --text texts/ --methods exact,int8 --cache ~/.cache/eval\n"
      "  kvcodec eval --model m.gguf --text a.txt --lengths 1024 --dump exact/\n"
      "  kvcodec eval --model m.gguf --text a.txt --lengths 1024 --methods external:mine=mine/");
  command->callback(
      [flags, &outcome] { outcome.exit_code = exit_code(run_eval(*flags), flags->json); });
}

}  // namespace kvcodec::tools
