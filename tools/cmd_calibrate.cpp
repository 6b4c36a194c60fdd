// SPDX-License-Identifier: Apache-2.0
// calibrate: a profile from a model and texts, from dumps of caches, or from nothing.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <stop_token>

#include "calibration.h"
#include "commands.h"
#include "kvcodec/profile.h"
#include "options.h"
#include "output.h"
#include "tensor_file.h"

namespace kvcodec::tools {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

struct CalibrateArgs {
  std::string model, texts, validation, out, state, shape_of, rope = "none", name;
  std::vector<std::string> dumps;
  CalibrationOptions options;
  bool identity = false, estimate = false, json = false;
};

// Ctrl-C ends the run at the next text, its state saved; a second one ends the process.
class Interrupt {
 public:
  Interrupt() { std::signal(SIGINT, handle); }
  ~Interrupt() { std::signal(SIGINT, SIG_DFL); }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  std::stop_token token() const { return source().get_token(); }

 private:
  static std::stop_source& source() {
    static std::stop_source one;
    return one;
  }
  static void handle(int) {
    std::signal(SIGINT, SIG_DFL);
    source().request_stop();
  }
};

// Text files below a folder, by name, so that kinds of text named alike alternate.
Result<std::vector<CalibrationText>> read_texts(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_regular_file()) paths.push_back(it->path());
  }
  if (error)
    return Error{ErrorCode::not_found, fmt::format("texts {}: {}", folder, error.message())};
  std::sort(paths.begin(), paths.end());
  std::vector<CalibrationText> texts;
  for (const fs::path& path : paths) {
    KVCODEC_TRY(const std::vector<std::byte> bytes, read_file(path.string()));
    texts.push_back({fs::relative(path, folder).generic_string(),
                     {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
  if (texts.empty())
    return Error{ErrorCode::invalid_argument, fmt::format("texts {}: no files", folder)};
  return texts;
}

// Without a folder for it, every eighth text validates.
void split_off_validation(std::vector<CalibrationText>& texts,
                          std::vector<CalibrationText>& validation) {
  std::vector<CalibrationText> kept;
  for (size_t i = 0; i < texts.size(); ++i)
    (i % 8 == 7 ? validation : kept).push_back(std::move(texts[i]));
  texts = std::move(kept);
}

json provenance(const std::vector<CalibrationText>& texts,
                const std::vector<CalibrationText>& validation) {
  const auto list = [](const std::vector<CalibrationText>& from) {
    json out = json::array();
    for (const CalibrationText& text : from)
      out.push_back(
          {{"name", text.name}, {"sha256", to_hex(sha256(std::as_bytes(std::span(text.text))))}});
    return out;
  };
  return {{"texts", list(texts)}, {"validation", list(validation)}};
}

// One bar a stage: a new stage begins a new line.
auto stage_bars() {
  auto bars = std::make_shared<std::map<std::string, std::function<void(size_t, size_t)>>>();
  return [bars](std::string_view stage, size_t done, size_t total) {
    const auto [bar, added] = bars->try_emplace(std::string(stage));
    if (added) bar->second = progress_bar(std::string(stage));
    if (bar->second) bar->second(done, total);  // none where stderr is no terminal
  };
}

json tiers_json(const ProfileFields& fields) {
  json out;
  for (Tier tier : kCalibratedTiers) {
    const ProfileTier& t = fields.tiers[tier_index(tier)];
    out[tier_name(tier)] = {{"step", t.step},
                            {"dead_zone", t.dead_zone},
                            {"bits_per_value", t.bits_per_value},
                            {"kl", t.kl}};
  }
  return out;
}

Status write_profile(const CalibrateArgs& args, const CalibrationResult& result) {
  KVCODEC_TRY(const std::vector<std::byte> bytes, serialise_profile(result.profile));
  // Read as anyone will read it.
  KVCODEC_TRY(const Profile profile, Profile::parse(bytes));
  KVCODEC_CHECK(write_file(args.out, bytes));
  if (args.json) {
    json stages;
    for (const auto& stage : result.stages) stages[stage.name] = stage.seconds;
    print_json({{"profile", args.out},
                {"digest", to_hex(profile.digest())},
                {"bytes", bytes.size()},
                {"tiers", tiers_json(result.profile)},
                {"seconds", stages}});
    return ok_status();
  }
  fmt::print("{}: {}, digest {}\n", args.out, human_bytes(bytes.size()),
             to_hex(profile.digest()).substr(0, 16));
  Table table({"tier", "step", "bits a value", "KL"});
  for (Tier tier : kCalibratedTiers) {
    const ProfileTier& t = result.profile.tiers[tier_index(tier)];
    const auto known = [](double x, const char* format) {
      return x > 0 ? fmt::format(fmt::runtime(format), x) : std::string("unknown");
    };
    table.add({tier_name(tier), fmt::format("{:.3f}", t.step), known(t.bits_per_value, "{:.3f}"),
               known(t.kl, "{:.5f}")});
  }
  fmt::print("{}", table.text());
  for (const auto& stage : result.stages) fmt::print("{:<9}{:8.1f} s\n", stage.name, stage.seconds);
  return ok_status();
}

Status calibrate_model(CalibrateArgs& args) {
  KVCODEC_TRY(std::vector<CalibrationText> texts, read_texts(args.texts));
  std::vector<CalibrationText> validation;
  if (args.validation.empty()) {
    split_off_validation(texts, validation);
  } else {
    KVCODEC_TRY(validation, read_texts(args.validation));
  }
  CalibrationOptions& options = args.options;
  const uint32_t context = options.window_tokens + options.continuation_tokens;
  KVCODEC_TRY(
      const auto model,
      open_calibration_model(args.model, context, options.continuation_tokens, options.threads));
  options.provenance = provenance(texts, validation).dump();
  KVCODEC_TRY(const CalibrationEstimate e,
              estimate_calibration(*model, texts, validation, options));
  if (!args.json || args.estimate) {
    fmt::print(
        "{} tokens ({} needed) and {} to validate; about {:.0f} min, {} of memory beside "
        "the model, {} of state\n",
        e.tokens, e.tokens_needed, e.validation_tokens, std::max(1.0, e.seconds / 60),
        human_bytes(e.memory_bytes), human_bytes(e.state_bytes));
    std::fflush(stdout);
  }
  if (args.estimate) return ok_status();
  options.state_path = args.state.empty() ? args.out + ".state" : args.state;
  KVCODEC_TRY(const CalibrationResult result, calibrate(*model, texts, validation, options));
  KVCODEC_CHECK(write_profile(args, result));
  std::error_code ignored;
  fs::remove(options.state_path, ignored);
  return ok_status();
}

Status calibrate_from_dumps(CalibrateArgs& args) {
  KvFile current;
  CalibrationDumps dumps;
  KVCODEC_TRY(current, read_kv_file(args.dumps[0]));
  dumps.shape = current.geometry.shape;
  KVCODEC_TRY(dumps.rope, parse_rope(args.rope, dumps.shape.key_dim));
  dumps.model = args.name;
  dumps.count = args.dumps.size();
  dumps.read = [&](size_t index) -> Result<KvSource> {
    KVCODEC_TRY(current, read_kv_file(args.dumps[index]));
    return current.source();
  };
  json files = json::array();
  for (const std::string& path : args.dumps) files.push_back(fs::path(path).filename().string());
  args.options.provenance = json{{"dumps", files}}.dump();
  KVCODEC_TRY(const CalibrationResult result, calibrate_dumps(dumps, args.options));
  return write_profile(args, result);
}

Status make_identity(CalibrateArgs& args) {
  KVCODEC_TRY(const KvFile file, read_kv_file(args.shape_of));
  KVCODEC_TRY(const Rope rope, parse_rope(args.rope, file.geometry.shape.key_dim));
  KVCODEC_TRY(const Profile profile, Profile::identity(file.geometry.shape, rope, args.name));
  CalibrationResult result;
  result.profile = profile.fields();
  return write_profile(args, result);
}

Status run_calibrate(CalibrateArgs& args) {
  const int ways = !args.model.empty() + !args.dumps.empty() + args.identity;
  if (ways != 1 || args.model.empty() != args.texts.empty() ||
      args.identity == args.shape_of.empty())
    return Error{ErrorCode::invalid_argument,
                 "calibrate: expected --model and --texts, or --dump, or --identity and --kv"};
  const Interrupt interrupt;
  args.options.stop = interrupt.token();
  args.options.progress = stage_bars();
  args.options.note = [](std::string_view text) { fmt::print(stderr, "note: {}\n", text); };
  if (!args.model.empty()) return calibrate_model(args);
  return args.identity ? make_identity(args) : calibrate_from_dumps(args);
}

}  // namespace

void add_calibrate(CLI::App& app, Outcome& outcome) {
  auto* command = app.add_subcommand("calibrate", "Make the profile of a model");
  auto args = std::make_shared<CalibrateArgs>();
  CalibrationOptions& o = args->options;
  command->add_option("--model", args->model, "GGUF model");
  command->add_option("--texts", args->texts, "folder of texts: scripts/calibration-texts");
  command->add_option("--validation", args->validation,
                      "folder of texts that steps are found on; without it every eighth text");
  command->add_option("--dump", args->dumps,
                      "instead of a model: .safetensors or .npy of sequences from position 0");
  command->add_flag("--identity", args->identity,
                    "instead of a model: a profile that knows nothing");
  command->add_option("--kv", args->shape_of, "with --identity: a cache of the model's shape");
  command
      ->add_option("--rope", args->rope,
                   "with --dump, --identity: none, interleaved:BASE[:DIMS] "
                   "or neox:BASE[:DIMS]")
      ->capture_default_str();
  command->add_option("--model-name", args->name, "with --dump, --identity: for people");
  command->add_option("-o,--out", args->out, "profile, .safetensors")->required();
  command->add_option("--state", args->state, "where an interrupted run goes on; OUT.state");
  command->add_option("--group-layers", o.group_layers, "layers of a group; 0: by channels")
      ->capture_default_str();
  command->add_option("--max-group-channels", o.max_group_channels, "channels of a group")
      ->capture_default_str();
  command->add_option("--window", o.window_tokens, "tokens of each text")->capture_default_str();
  command->add_option("--continuation", o.continuation_tokens, "tokens judged a validation text")
      ->capture_default_str();
  command->add_option("--max-tokens", o.max_tokens, "calibrated on at most")->capture_default_str();
  command->add_option("--sensitivity-texts", o.sensitivity_texts, "texts for gradients or noise")
      ->capture_default_str();
  command->add_option("--dead-zone", o.dead_zone, "0.5 (rounding) to 1, before codes are lowered")
      ->capture_default_str();
  command->add_option("--kl-high", o.kl[0], "KL of tier high, nats a token")->capture_default_str();
  command->add_option("--kl-balanced", o.kl[1], "KL of tier balanced")->capture_default_str();
  command->add_option("--kl-small", o.kl[2], "KL of tier small")->capture_default_str();
  command->add_option("--seed", o.seed, "of sampled continuations")->capture_default_str();
  command->add_option("--threads", o.threads, "threads; 0: all cores")->capture_default_str();
  command->add_flag("--estimate", args->estimate, "only say what it takes");
  command->add_flag("--json", args->json, "figures as JSON");
  command->footer(
      "Examples:\n"
      "  scripts/calibration-texts texts\n"
      "  kvcodec calibrate --model m.gguf --texts texts/calibrate --validation texts/validate \\\n"
      "                    -o m.profile.safetensors\n"
      "  kvcodec calibrate --dump a.safetensors --dump b.safetensors --rope neox:10000 -o "
      "p.safetensors\n"
      "  kvcodec calibrate --identity --kv a.safetensors --rope neox:10000 -o p.safetensors");
  command->callback(
      [args, &outcome] { outcome.exit_code = exit_code(run_calibrate(*args), args->json); });
}

}  // namespace kvcodec::tools
