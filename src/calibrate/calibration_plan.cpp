// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibration_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace kvcodec::calibration {
namespace {

// A window shorter than this says little, and nothing of its continuation.
constexpr size_t kLeastWindow = 64;

Digest fingerprint(const CalibrationModel::Facts& facts, const Plan& plan,
                   const CalibrationOptions& options) {
  std::string all = fmt::format("kvcodec calibration state 2\n{}\n{} {} {} {} {}\n", facts.name,
                                to_hex(facts.weights), facts.shape.layers, facts.shape.kv_heads,
                                facts.shape.key_dim, facts.shape.value_dim);
  all += fmt::format("{} {} {} {} {}\n", options.window_tokens, options.continuation_tokens,
                     options.sink_tokens, options.sensitivity_texts, options.seed);
  all += fmt::format("{}\n", options.dead_zone);
  for (const GroupPlace& g : plan.groups) all += fmt::format("{} {}\n", g.first_layer, g.layers);
  for (const auto* windows : {&plan.windows, &plan.validation}) {
    for (const Window& window : *windows)
      all += fmt::format("{}: {}\n", window.name, fmt::join(window.tokens, " "));
  }
  return sha256(std::as_bytes(std::span(all)));
}

}  // namespace

Status check_options(const CalibrationOptions& o) {
  if (o.window_tokens < kLeastWindow || o.continuation_tokens == 0 ||
      o.sink_tokens >= kLeastWindow / 2 || o.sensitivity_texts == 0)
    return make_error(ErrorCode::invalid_argument,
                      "calibration: window of {}, continuation of {}, {} sinks, {} sensitivity "
                      "texts: expected at least {}, 1, at most {}, at least 1",
                      o.window_tokens, o.continuation_tokens, o.sink_tokens, o.sensitivity_texts,
                      kLeastWindow, kLeastWindow / 2 - 1);
  if (!(o.dead_zone >= 0.5 && o.dead_zone <= 1))
    return make_error(ErrorCode::invalid_argument, "calibration: dead zone {}: expected 0.5 to 1",
                      o.dead_zone);
  if (!(o.kl[0] > 0 && o.kl[0] <= o.kl[1] && o.kl[1] <= o.kl[2]))
    return make_error(ErrorCode::invalid_argument,
                      "calibration: KL of high {}, balanced {}, small {}: expected to rise from "
                      "above 0",
                      o.kl[0], o.kl[1], o.kl[2]);
  return ok_status();
}

std::vector<GroupPlace> plan_groups(const KvShape& shape, const CalibrationOptions& options) {
  std::vector<GroupPlace> groups;
  for (KvKind kind : kKvKinds) {
    const uint32_t channels = shape.channels(kind);
    if (channels == 0) continue;
    const uint32_t fit = std::max<uint32_t>(1, options.max_group_channels / channels);
    const uint32_t most =
        std::min(shape.layers, options.group_layers > 0 ? options.group_layers : fit);
    // Groups of nearly equal size: 30 layers in groups of at most 16 are 15 and 15.
    const uint32_t count = (shape.layers + most - 1) / most;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t first = shape.layers * i / count, end = shape.layers * (i + 1) / count;
      groups.push_back({kind, first, end - first});
    }
  }
  return groups;
}

uint64_t most_channels(const KvShape& shape, std::span<const GroupPlace> groups) {
  uint64_t most = 0;
  for (const GroupPlace& g : groups)
    most = std::max<uint64_t>(most, uint64_t{g.layers} * shape.channels(g.kind));
  return most;
}

Status check_tokens(const Plan& plan, const KvShape& shape) {
  if (plan.tokens < plan.tokens_needed) {
    uint32_t layers = 0;
    for (const GroupPlace& g : plan.groups) layers = std::max(layers, g.layers);
    return make_error(
        ErrorCode::invalid_argument,
        "calibration: {} tokens in {} texts; groups of {} channels ({} layers) need {}: add texts, "
        "or make the groups smaller (1 layer needs {})",
        plan.tokens, plan.windows.size(), most_channels(shape, plan.groups), layers,
        plan.tokens_needed,
        kTokensPerChannel * std::max(shape.channels(KvKind::key), shape.channels(KvKind::value)));
  }
  if (plan.validation.empty())
    return make_error(ErrorCode::invalid_argument,
                      "calibration: no validation text of at least {} tokens: one is needed",
                      2 * kLeastWindow);
  return ok_status();
}

Result<Plan> make_plan(const CalibrationModel& model, std::span<const CalibrationText> texts,
                       std::span<const CalibrationText> validation,
                       const CalibrationOptions& options) {
  KVCODEC_CHECK(check_options(options));
  const CalibrationModel::Facts& facts = model.facts();
  const size_t longest = size_t{options.window_tokens} + options.continuation_tokens;
  if (longest > facts.context_tokens)
    return make_error(ErrorCode::invalid_argument,
                      "calibration: window and continuation of {} tokens: the context holds {}",
                      longest, facts.context_tokens);
  Plan plan;
  plan.groups = plan_groups(facts.shape, options);
  std::set<std::string> contents;
  for (const CalibrationText& text : texts) {
    contents.insert(text.text);
    Window window{text.name, {}};
    KVCODEC_TRY(window.tokens, model.tokenize(text.text));
    window.tokens.resize(std::min<size_t>(window.tokens.size(), options.window_tokens));
    if (window.tokens.size() < kLeastWindow || plan.tokens >= options.max_tokens) continue;
    plan.tokens += window.tokens.size() - options.sink_tokens;
    plan.windows.push_back(std::move(window));
  }
  for (const CalibrationText& text : validation) {
    if (contents.count(text.text) > 0)
      return make_error(ErrorCode::invalid_argument,
                        "calibration: validation text {} is a calibration text too", text.name);
    Window window{text.name, {}};
    KVCODEC_TRY(window.tokens, model.tokenize(text.text));
    // Short prefixes forgive less: what is asked for has to hold in the mean of both.
    const bool half = half_of(plan.validation.size()) == 1;
    window.tokens.resize(
        std::min(window.tokens.size(), longest - (half ? options.window_tokens / 2 : 0)));
    if (window.tokens.size() < options.continuation_tokens + kLeastWindow) continue;
    plan.validation.push_back(std::move(window));
  }
  plan.tokens_needed = kTokensPerChannel * most_channels(facts.shape, plan.groups);
  plan.fingerprint = fingerprint(facts, plan, options);
  return plan;
}

}  // namespace kvcodec::calibration
