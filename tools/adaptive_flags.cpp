// SPDX-License-Identifier: Apache-2.0
#include "adaptive_flags.h"

#include <fmt/format.h>

#include <map>

#include "options.h"

namespace kvcodec::tools {

namespace {

std::map<std::string, size_t> count_renditions(const AdaptiveReport& report) {
  std::map<std::string, size_t> counts;
  for (const std::string& rendition : report.renditions) ++counts[rendition];
  return counts;
}

Status write_text(const std::string& path, const std::string& text) {
  return path.empty() ? ok_status() : write_file(path, std::as_bytes(std::span(text)));
}

}  // namespace

void AdaptiveFlags::add_to(CLI::App& command) {
  command.add_flag("--adaptive", adaptive,
                   "choose each chunk's rendition by the link and the decoder; for prefixes that "
                   "were published with --renditions");
  const auto needs = [&](CLI::Option* option) { option->needs("--adaptive"); };
  needs(
      command.add_option("--renditions", renditions, "choose from these only: exact,int8-h512,...")
          ->delimiter(','));
  needs(command
            .add_option("--deadline", deadline,
                        "seconds; then the fetch ends, and a model computes the rest")
            ->check(CLI::PositiveNumber));
  needs(
      command.add_option("--stall", stall, "seconds without an answer until a get is asked again")
          ->check(CLI::PositiveNumber));
  needs(command
            .add_option("--prefill-rate", prefill_rate,
                        "tokens a second that the model computes; the fetch ends where "
                        "computing the rest is sooner")
            ->check(CLI::PositiveNumber));
  needs(command.add_option("--machine", machine, "decode rates to begin with: cpu or h200"));
  needs(command.add_option("--trace", trace, "write the pipeline's spans for Perfetto"));
  needs(command.add_option("--metrics", metrics, "write figures in Prometheus' text format"));
  needs(command.add_flag("--log", log, "events as lines of JSON on stderr"));
}

Result<std::unique_ptr<AdaptiveRun>> AdaptiveRun::create(const AdaptiveFlags& flags,
                                                         const Profile* profile, Tier lowest_tier) {
  std::unique_ptr<AdaptiveRun> run(new AdaptiveRun);
  run->flags_ = flags;
  KVCODEC_TRY(run->rates_, DecodeRates::of(flags.machine));
  AdaptiveOptions& options = run->options_;
  for (const std::string& name : flags.renditions) {
    KVCODEC_TRY(std::string whole, complete_rendition(name, profile));
    options.renditions.push_back(std::move(whole));
  }
  options.profile = profile;
  options.lowest_tier = lowest_tier;
  options.deadline_seconds = flags.deadline;
  options.stall_seconds = flags.stall;
  options.prefill.tokens_per_second = flags.prefill_rate;
  options.progress = progress_bar("fetch");
  options.observers.trace = flags.trace.empty() ? nullptr : &run->trace_;
  options.observers.metrics = flags.metrics.empty() ? nullptr : &run->metrics_;
  if (flags.log)
    options.observers.log = [](const LogEvent& event) {
      fmt::print(stderr, "{}\n", log_line(event));
    };
  return run;
}

Result<AdaptiveReport> AdaptiveRun::fetch(Store& store, const Digest& ns,
                                          std::span<const int32_t> tokens, const KvTarget& target) {
  KVCODEC_TRY(const auto restorer, host_restorer(target));
  PrefixFetcher fetcher(store, rates_);
  KVCODEC_TRY(report_, fetcher.fetch(ns, tokens, *restorer, options_));
  return report_;
}

Status AdaptiveRun::write_files() const {
  KVCODEC_CHECK(write_text(flags_.trace, trace_.chrome_json()));
  return write_text(flags_.metrics, metrics_.text());
}

nlohmann::json AdaptiveRun::json() const {
  return {{"renditions", count_renditions(report_)},
          {"chunks_known", report_.chunks_known},
          {"wasted_bytes", report_.wasted_bytes},
          {"hedges", report_.hedges},
          {"retries", report_.retries},
          {"switches", report_.switches},
          {"link_bytes_per_second", report_.bytes_per_second},
          {"expected_seconds", report_.expected_seconds},
          {"recompute_is_sooner", report_.recompute_is_sooner}};
}

std::string AdaptiveRun::text() const {
  std::string renditions;
  for (const auto& [name, chunks] : count_renditions(report_))
    renditions += fmt::format("{}{} {}", renditions.empty() ? "" : ", ", chunks, name);
  return fmt::format("{}; link {:.1f} Mb/s; {} retries, {} hedges, {} switches",
                     renditions.empty() ? "no chunk" : renditions, 8e-6 * report_.bytes_per_second,
                     report_.retries, report_.hedges, report_.switches);
}

}  // namespace kvcodec::tools
