// SPDX-License-Identifier: Apache-2.0
// The project's main job, end to end: one process publishes the KV cache of a document, others
// answer a question about it by full prefill, from raw bytes and from KVCodec chunks.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "demo.h"
#include "kvcodec/version.h"
#include "output.h"

namespace kvcodec::tools {

namespace {

using nlohmann::json;

constexpr const char* kMethods[] = {"raw", "exact", "int8"};

// Runs this program in another role and returns what it printed.
Result<json> run_child(const std::string& role, const DemoArgs& args) {
  std::vector<std::string> words = {"kvcodec_demo",
                                    "--role",
                                    role,
                                    "--model",
                                    args.model,
                                    "--text",
                                    args.text,
                                    "--store",
                                    args.store,
                                    "--question",
                                    args.question,
                                    "--reference",
                                    args.reference,
                                    "--text-tokens",
                                    fmt::format("{}", args.text_tokens),
                                    "--threads",
                                    fmt::format("{}", args.threads),
                                    "--method",
                                    args.method,
                                    "--mbps",
                                    fmt::format("{}", args.mbps)};
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int out[2];
  if (pipe(out) != 0) return Error{ErrorCode::io, "demo: cannot make a pipe"};
  const pid_t child = fork();
  if (child < 0) return Error{ErrorCode::io, "demo: cannot start a process"};
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    close(out[0]);
    close(out[1]);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(out[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(out[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  close(out[0]);
  int status = 0;
  waitpid(child, &status, 0);
  json result = json::parse(text, nullptr, false);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !result.is_object()) {
    const std::string why = result.is_object() ? result.value("message", text) : text;
    return Error{ErrorCode::internal,
                 fmt::format("demo: {} {} failed: {}", role, args.method, why)};
  }
  return result;
}

struct Sweep {
  DemoArgs args;
  std::vector<double> mbps = {100};
  std::string json_file;
};

struct Row {
  std::string method;
  double mbps = 0;  // 0: no link
  json figures;
};

std::string cell(const json& figures, const char* field, const char* format) {
  if (!figures.contains(field)) return "-";
  return fmt::format(fmt::runtime(format), figures[field].get<double>());
}

std::string same_cell(const Row& row) {
  if (row.method == "prefill") return "reference";
  if (row.figures["logits_identical"].get<bool>()) return "yes, bit for bit";
  return row.figures["same_continuation"].get<bool>()
             ? "yes"
             : fmt::format("{:.0f} %", 100 * row.figures["agreement"].get<double>());
}

void print_table(const std::vector<Row>& rows) {
  Table table({"link Mb/s", "method", "bytes", "bits/value", "transfer s", "decode s", "TTFT s",
               "vs prefill", "vs raw", "same 32 tokens", "KL"});
  const double prefill = rows.front().figures["ttft_seconds"];
  double raw = 0;
  for (const Row& row : rows) {
    const json& f = row.figures;
    const double ttft = f["ttft_seconds"];
    if (row.method == "raw") raw = ttft;
    table.add({row.mbps > 0 ? fmt::format("{:g}", row.mbps) : "-", row.method,
               f.contains("bytes") ? fmt::format("{}", f["bytes"].get<uint64_t>()) : "-",
               cell(f, "bits_per_value", "{:.3f}"), cell(f, "transfer_seconds", "{:.2f}"),
               cell(f, "decode_seconds", "{:.2f}"), fmt::format("{:.2f}", ttft),
               fmt::format("{:.2f}x", prefill / ttft),
               raw > 0 ? fmt::format("{:.2f}x", raw / ttft) : "-", same_cell(row),
               cell(f, "kl", "{:.5f}")});
  }
  fmt::print("\n{}\n", table.text());
}

double ttft_of(const std::vector<Row>& rows, const std::string& method, double mbps) {
  for (const Row& row : rows) {
    if (row.method == method && row.mbps == mbps) return row.figures["ttft_seconds"];
  }
  return 0;
}

// Where one way overtakes another within the sweep.
std::vector<std::string> crossovers(const std::vector<Row>& rows, std::vector<double> mbps) {
  std::sort(mbps.begin(), mbps.end());
  const double prefill = rows.front().figures["ttft_seconds"];
  std::vector<std::string> lines;
  const auto compare = [&](const std::string& a, const std::string& b, auto ttft_b) {
    for (size_t i = 0; i + 1 < mbps.size(); ++i) {
      const bool now = ttft_of(rows, a, mbps[i]) < ttft_b(mbps[i]);
      const bool next = ttft_of(rows, a, mbps[i + 1]) < ttft_b(mbps[i + 1]);
      if (now != next) {
        lines.push_back(fmt::format("{} overtakes {} between {:g} and {:g} Mb/s", next ? a : b,
                                    next ? b : a, mbps[i], mbps[i + 1]));
      }
    }
    if (lines.empty() || lines.back().find(a) == std::string::npos ||
        lines.back().find(b) == std::string::npos) {
      const bool first = ttft_of(rows, a, mbps.front()) < ttft_b(mbps.front());
      const std::string where =
          mbps.size() == 1 ? fmt::format("at {:g} Mb/s", mbps.front())
                           : fmt::format("from {:g} to {:g} Mb/s", mbps.front(), mbps.back());
      lines.push_back(fmt::format("{} is ahead of {} {}", first ? a : b, first ? b : a, where));
    }
  };
  for (const char* method : kMethods) {
    compare(method, "full prefill", [&](double) { return prefill; });
  }
  for (const char* method : {"exact", "int8"}) {
    compare(method, "raw", [&](double at) { return ttft_of(rows, "raw", at); });
  }
  return lines;
}

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(": ") + 2);
  }
  return "unknown";
}

json report_json(const Sweep& sweep, const json& published, const std::vector<Row>& rows,
                 const std::vector<std::string>& lines) {
  json results = json::array();
  const double prefill = rows.front().figures["ttft_seconds"];
  for (const Row& row : rows) {
    json figures = row.figures;
    figures["method"] = row.method;
    if (row.mbps > 0) {
      figures["mbps"] = row.mbps;
      figures["speedup_over_prefill"] = prefill / figures["ttft_seconds"].get<double>();
      figures["speedup_over_raw"] =
          ttft_of(rows, "raw", row.mbps) / figures["ttft_seconds"].get<double>();
    }
    results.push_back(std::move(figures));
  }
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::string links;
  for (double mbps : sweep.mbps) links += fmt::format("{}{:g}", links.empty() ? "" : ",", mbps);
  return {{"name", "demo"},
          {"date", fmt::format("{:%Y-%m-%d}", fmt::gmtime(now))},
          {"version", KVCODEC_VERSION_STRING},
          {"command", fmt::format("scripts/demo --mbps {}", links)},
          {"hardware", {{"processor", processor()}, {"cores", sysconf(_SC_NPROCESSORS_ONLN)}}},
          {"model", std::filesystem::path(sweep.args.model).filename()},
          {"question", sweep.args.question},
          {"published", published},
          {"results", results},
          {"crossovers", lines}};
}

Status run_sweep(Sweep sweep) {
  DemoArgs& args = sweep.args;
  fmt::print(stderr, "publishing the KV cache of {} tokens in a process of its own\n",
             args.text_tokens);
  KVCODEC_TRY(const json published, run_child("publish", args));
  args.reference = args.store + ".reference";
  std::vector<Row> rows;
  fmt::print(stderr, "answering by full prefill\n");
  args.method = "prefill";
  KVCODEC_TRY(const json prefill, run_child("answer", args));
  rows.push_back({"prefill", 0, prefill});
  for (double mbps : sweep.mbps) {
    for (const char* method : kMethods) {
      fmt::print(stderr, "answering from {} at {:g} Mb/s\n", method, mbps);
      args.method = method;
      args.mbps = mbps;
      KVCODEC_TRY(const json figures, run_child("answer", args));
      rows.push_back({method, mbps, figures});
    }
  }
  const auto lines = crossovers(rows, sweep.mbps);
  fmt::print(
      "\nmodel     {}\nprocessor {}\nprompt    {} tokens: {} published in chunks of 256, {} "
      "computed\n"
      "question  {}\nanswer    {}\n",
      std::filesystem::path(args.model).filename().string(), processor(),
      published["tokens"].get<uint32_t>() + rows.back().figures["computed_tokens"].get<uint32_t>(),
      published["tokens"].get<uint32_t>(), rows.back().figures["computed_tokens"].get<uint32_t>(),
      json(args.question).dump(), prefill["answer"].dump());
  print_table(rows);
  for (const std::string& line : lines) fmt::print("{}\n", line);
  if (!sweep.json_file.empty()) {
    const std::string text = report_json(sweep, published, rows, lines).dump(2) + "\n";
    KVCODEC_CHECK(write_file(sweep.json_file, std::as_bytes(std::span(text))));
  }
  for (const Row& row : rows) {
    if (row.method == "exact" && !row.figures["same_continuation"].get<bool>()) {
      return Error{ErrorCode::internal, "demo: exact gave other tokens than the full prefill"};
    }
  }
  return ok_status();
}

// Children and store live in a folder that goes when the demo does.
int run_parent(Sweep sweep) {
  const char* base = std::getenv("TMPDIR");
  std::string folder = fmt::format("{}/kvcodec-demo-XXXXXX", base != nullptr ? base : "/tmp");
  if (mkdtemp(folder.data()) == nullptr) {
    return report_error({ErrorCode::io, folder + ": cannot make the folder"}, false);
  }
  sweep.args.store = folder + "/store";
  const Status done = run_sweep(std::move(sweep));
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return done.ok() ? 0 : report_error(done.error(), false);
}

int run_role(const std::string& role, const DemoArgs& args) {
  const Result<json> result = role == "publish" ? demo_publish(args) : demo_answer(args);
  if (!result.ok()) return report_error(result.error(), true);
  print_json(*result);
  return 0;
}

}  // namespace

}  // namespace kvcodec::tools

int main(int argc, char** argv) {
  using namespace kvcodec::tools;
  CLI::App app{
      "Answers a question about a long text from a KV cache that another process published"};
  Sweep sweep;
  std::string role;
  sweep.args.text_tokens = 4096;
  sweep.args.question = "\n\nQuestion: In one sentence, what is this text about?\nAnswer:";
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--model", sweep.args.model, "GGUF model")->required();
  app.add_option("--text", sweep.args.text, "the text")->required();
  app.add_option("--text-tokens", sweep.args.text_tokens, "how much of it is the shared prefix")
      ->capture_default_str();
  app.add_option("--question", sweep.args.question, "follows the text");
  app.add_option("--mbps", sweep.mbps, "bandwidths of the link, Mb/s: 25,50,100")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--json", sweep.json_file, "write the figures to this file too");
  app.add_option("--threads", sweep.args.threads, "threads; 0: all cores")->capture_default_str();
  app.footer("Example: kvcodec_demo --model m.gguf --text docs.txt --mbps 25,50,100,200,400,800");
  // How the parent starts its children; not shown in the help.
  app.add_option("--role", role)->group("");
  app.add_option("--store", sweep.args.store)->group("");
  app.add_option("--method", sweep.args.method)->group("");
  app.add_option("--reference", sweep.args.reference)->group("");
  CLI11_PARSE(app, argc, argv);
  if (role.empty()) return run_parent(std::move(sweep));
  sweep.args.mbps = sweep.mbps.empty() ? 0 : sweep.mbps.front();
  return run_role(role, sweep.args);
}
