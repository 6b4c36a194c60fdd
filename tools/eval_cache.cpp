// SPDX-License-Identifier: Apache-2.0
#include "eval_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "output.h"

namespace kvcodec::tools {

using nlohmann::json;

EvalKey::EvalKey(const std::vector<std::string>& words,
                 const std::vector<std::span<const int32_t>>& tokens) {
  // Lengths before contents, so that no two lists give the same bytes.
  std::string bytes = fmt::format("kvcodec eval 1\n{}\n", words.size());
  for (const std::string& word : words) bytes += fmt::format("{}\n{}\n", word.size(), word);
  for (const auto ids : tokens) {
    bytes += fmt::format("{}\n", ids.size());
    bytes.append(reinterpret_cast<const char*>(ids.data()), ids.size_bytes());
  }
  digest_ = sha256(std::as_bytes(std::span(bytes)));
}

std::string EvalCache::path(const char* kind, const EvalKey& key, const char* extension) const {
  return fmt::format("{}/{}-{}.{}", folder_, kind, key.hex().substr(0, 32), extension);
}

std::optional<KvFile> EvalCache::find_kv(const EvalKey& key, const KvShape& shape,
                                         std::span<const int32_t> tokens) const {
  if (folder_.empty()) return std::nullopt;
  auto kv = read_kv_file(path("prefix", key, "safetensors"));
  if (!kv.ok() || kv->geometry.shape != shape ||
      !std::equal(kv->tokens.begin(), kv->tokens.end(), tokens.begin(), tokens.end())) {
    return std::nullopt;
  }
  return *std::move(kv);
}

Status EvalCache::keep_kv(const EvalKey& key, const KvFile& kv) const {
  return folder_.empty() ? ok_status() : write_kv_file(path("prefix", key, "safetensors"), kv);
}

std::optional<Divergence> EvalCache::find_score(const EvalKey& key) const {
  if (folder_.empty()) return std::nullopt;
  const auto bytes = read_file(path("score", key, "json"));
  if (!bytes.ok()) return std::nullopt;
  const auto* text = reinterpret_cast<const char*>(bytes->data());
  const json value = json::parse(text, text + bytes->size(), nullptr, false);
  const auto number = [&](const char* name) {
    return value.is_object() && value.contains(name) && value[name].is_number();
  };
  const auto flag = [&](const char* name) {
    return value.is_object() && value.contains(name) && value[name].is_boolean();
  };
  if (!number("kl") || !number("top1") || !number("log_prob") || !number("exact_log_prob") ||
      !flag("top_is_target") || !flag("exact_top_is_target") || !flag("identical")) {
    return std::nullopt;
  }
  return Divergence{.kl = value["kl"],
                    .top1 = value["top1"],
                    .log_prob = value["log_prob"],
                    .exact_log_prob = value["exact_log_prob"],
                    .top_is_target = value["top_is_target"],
                    .exact_top_is_target = value["exact_top_is_target"],
                    .identical = value["identical"]};
}

Status EvalCache::keep_score(const EvalKey& key, const Divergence& score) const {
  if (folder_.empty()) return ok_status();
  const std::string text = json{
      {"kl", score.kl},
      {"top1", score.top1},
      {"log_prob", score.log_prob},
      {"exact_log_prob", score.exact_log_prob},
      {"top_is_target", score.top_is_target},
      {"exact_top_is_target", score.exact_top_is_target},
      {"identical",
       score.identical}}.dump();
  return write_file(path("score", key, "json"), std::as_bytes(std::span(text)));
}

}  // namespace kvcodec::tools
