// SPDX-License-Identifier: Apache-2.0
#include "profile/profile_metadata.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace kvcodec::profile {
namespace {

using nlohmann::json;
using Metadata = std::map<std::string, std::string>;

constexpr const char* kRopeStyles[] = {"none", "interleaved", "neox"};

template <typename Expected, typename Found>
Error bad(std::string_view field, const Expected& expected, const Found& found) {
  return make_error(ErrorCode::corrupt, "profile metadata {}: expected {}, found {}", field,
                    expected, found);
}

Result<std::string> text_of(const Metadata& metadata, const std::string& field) {
  const auto at = metadata.find(field);
  if (at == metadata.end()) return bad(field, "a text", "none");
  return at->second;
}

Result<json> object_of(const Metadata& metadata, const std::string& field) {
  KVCODEC_TRY(const std::string text, text_of(metadata, field));
  json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return bad(field, "a JSON object", "something else");
  return object;
}

Result<uint32_t> whole_number(const json& object, const char* field, uint64_t low, uint64_t high) {
  const auto at = object.find(field);
  if (at == object.end() || !at->is_number_unsigned() || at->get<uint64_t>() < low ||
      at->get<uint64_t>() > high) {
    return bad(field, fmt::format("a number from {} to {}", low, high),
               at == object.end() ? "none" : at->dump());
  }
  return at->get<uint32_t>();
}

Result<double> number(const json& object, const std::string& field, double low, double high) {
  const auto at = object.find(field.substr(field.find('.') + 1));
  if (at == object.end() || !at->is_number() || !(at->get<double>() >= low) ||
      !(at->get<double>() <= high)) {
    return bad(field, fmt::format("a number from {} to {}", low, high),
               at == object.end() ? "none" : at->dump());
  }
  return at->get<double>();
}

Status check_version(const Metadata& metadata) {
  const auto at = metadata.find("kvcodec_profile");
  if (at == metadata.end()) return bad("kvcodec_profile", kProfileVersion, "none: not a profile");
  int version = 0;
  const std::string& text = at->second;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (failed != std::errc{} || end != text.data() + text.size() || version < 1)
    return bad("kvcodec_profile", kProfileVersion, text);
  if (version == kProfileVersion) return ok_status();
  return make_error(ErrorCode::unsupported,
                    "profile metadata kvcodec_profile: expected {}, found {}; a newer program "
                    "wrote this profile",
                    kProfileVersion, version);
}

Status read_shape(const Metadata& metadata, KvShape& shape) {
  KVCODEC_TRY(const json object, object_of(metadata, "shape"));
  KVCODEC_TRY(shape.layers, whole_number(object, "layers", 1, kMaxDim));
  KVCODEC_TRY(shape.kv_heads, whole_number(object, "kv_heads", 1, kMaxDim));
  KVCODEC_TRY(shape.key_dim, whole_number(object, "key_dim", 1, kMaxDim));
  KVCODEC_TRY(shape.value_dim, whole_number(object, "value_dim", 0, kMaxDim));
  for (KvKind kind : kKvKinds) {
    const uint64_t rows = uint64_t{shape.layers} * shape.kv_heads * shape.head_dim(kind);
    if (rows > kMaxRows)
      return bad("shape", fmt::format("at most {} channels over all layers", kMaxRows), rows);
  }
  return ok_status();
}

Status read_rope(const Metadata& metadata, uint32_t key_dim, Rope& rope) {
  KVCODEC_TRY(const json object, object_of(metadata, "rope"));
  const auto style = object.find("style");
  const std::string name =
      style != object.end() && style->is_string() ? style->get<std::string>() : "";
  for (size_t i = 0; i <= std::size(kRopeStyles); ++i) {
    if (i == std::size(kRopeStyles)) return bad("rope style", "none, interleaved or neox", name);
    if (name != kRopeStyles[i]) continue;
    rope.style = static_cast<Rope::Style>(i);
    break;
  }
  if (rope.style == Rope::Style::none) return ok_status();
  KVCODEC_TRY(rope.rotary_dims, whole_number(object, "rotary_dims", 2, key_dim));
  const auto steps = object.find("phase_steps");
  if (rope.rotary_dims % 2 != 0 || steps == object.end() || !steps->is_array() ||
      steps->size() != rope.rotary_dims / 2) {
    return bad(
        "rope", "an even rotary_dims and half as many phase_steps",
        fmt::format("{} and {}", rope.rotary_dims, steps == object.end() ? 0 : steps->size()));
  }
  for (const json& step : *steps) {
    const std::string text = step.is_string() ? step.get<std::string>() : "";
    uint64_t value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (text.empty() || failed != std::errc{} || end != text.data() + text.size())
      return bad("rope phase_steps", "hexadecimal numbers of 64 bits", step.dump());
    rope.phase_steps.push_back(value);
  }
  return ok_status();
}

Status read_tiers(const Metadata& metadata, std::array<ProfileTier, 3>& tiers) {
  KVCODEC_TRY(const json object, object_of(metadata, "tiers"));
  for (Tier tier : kCalibratedTiers) {
    const std::string name = tier_name(tier);
    const auto entry = object.find(name);
    if (entry == object.end() || !entry->is_object()) return bad("tiers", name, "none");
    ProfileTier& out = tiers[tier_index(tier)];
    // Bounds that keep a quotient by the step and a sum of squares inside binary32.
    KVCODEC_TRY(out.step, number(*entry, name + ".step", 1e-6, 1e6));
    KVCODEC_TRY(out.dead_zone, number(*entry, name + ".dead_zone", 0.5, 1));
    KVCODEC_TRY(out.bits_per_value, number(*entry, name + ".bits_per_value", 0, 64));
    KVCODEC_TRY(out.kl, number(*entry, name + ".kl", 0, 1e6));
    if (tier != Tier::high && out.step < tiers[tier_index(tier) - 1].step)
      return bad(name + ".step", "not below that of the finer tier", out.step);
  }
  return ok_status();
}

}  // namespace

Metadata write_metadata(const ProfileFields& fields) {
  Metadata out;
  out["kvcodec_profile"] = std::to_string(kProfileVersion);
  out["kind"] = fields.kind == ProfileFields::Kind::identity ? "identity" : "calibrated";
  out["model"] = fields.model;
  out["weights"] = to_hex(fields.weights);
  const KvShape& shape = fields.shape;
  out["shape"] = json{{"layers", shape.layers},
                      {"kv_heads", shape.kv_heads},
                      {"key_dim", shape.key_dim},
                      {"value_dim", shape.value_dim}}
                     .dump();
  const auto style = std::min<size_t>(static_cast<size_t>(fields.rope.style), 2);
  json rope = {{"style", kRopeStyles[style]}, {"rotary_dims", fields.rope.rotary_dims}};
  rope["phase_steps"] = json::array();
  for (uint64_t step : fields.rope.phase_steps)
    rope["phase_steps"].push_back(fmt::format("{:016x}", step));
  out["rope"] = rope.dump();
  json tiers;
  for (Tier tier : kCalibratedTiers) {
    const ProfileTier& from = fields.tiers[tier_index(tier)];
    tiers[tier_name(tier)] = {{"step", from.step},
                              {"dead_zone", from.dead_zone},
                              {"bits_per_value", from.bits_per_value},
                              {"kl", from.kl}};
  }
  out["tiers"] = tiers.dump();
  out["calibration"] = fields.calibration;
  return out;
}

Result<ProfileFields> read_metadata(const Metadata& metadata) {
  KVCODEC_CHECK(check_version(metadata));
  ProfileFields fields;
  KVCODEC_TRY(const std::string kind, text_of(metadata, "kind"));
  if (kind != "calibrated" && kind != "identity")
    return bad("kind", "calibrated or identity", kind);
  fields.kind =
      kind == "identity" ? ProfileFields::Kind::identity : ProfileFields::Kind::calibrated;
  KVCODEC_TRY(fields.model, text_of(metadata, "model"));
  KVCODEC_TRY(const std::string weights, text_of(metadata, "weights"));
  auto digest = digest_from_hex(weights);
  if (!digest.ok()) return bad("weights", "64 hexadecimal digits", weights);
  fields.weights = *digest;
  KVCODEC_CHECK(read_shape(metadata, fields.shape));
  KVCODEC_CHECK(read_rope(metadata, fields.shape.key_dim, fields.rope));
  KVCODEC_CHECK(read_tiers(metadata, fields.tiers));
  KVCODEC_CHECK(object_of(metadata, "calibration"));
  fields.calibration = metadata.at("calibration");
  return fields;
}

}  // namespace kvcodec::profile
