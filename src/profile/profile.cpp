// SPDX-License-Identifier: Apache-2.0
#include "kvcodec/profile.h"

#include "base/error.h"

namespace kvcodec {

Result<Profile> Profile::identity(const KvShape& shape, const Rope& rope,
                                  const std::string& model) {
  ProfileFields fields;
  fields.kind = ProfileFields::Kind::identity;
  fields.model = model;
  fields.shape = shape;
  if (rope.style != Rope::Style::none) fields.rope = rope;
  // Measured on SmolLM2 (docs/benchmarks.md, "Tiers without a profile").
  fields.tiers = {ProfileTier{0.25, 0.5, 0, 0}, ProfileTier{0.5, 0.5, 0, 0},
                  ProfileTier{0.7, 0.5, 0, 0}};
  KVCODEC_TRY(const std::vector<std::byte> bytes, serialise_profile(fields));
  return parse(bytes);
}

Status Profile::check_shape(const KvShape& shape) const {
  const KvShape& own = fields_.shape;
  const std::pair<const char*, std::pair<uint32_t, uint32_t>> dims[] = {
      {"layers", {own.layers, shape.layers}},
      {"kv_heads", {own.kv_heads, shape.kv_heads}},
      {"key_dim", {own.key_dim, shape.key_dim}},
      {"value_dim", {own.value_dim, shape.value_dim}}};
  for (const auto& [field, values] : dims) {
    if (values.first != values.second) {
      return make_error(ErrorCode::invalid_argument,
                        "the profile is of another model: {}: expected {} as in the profile{}{}, "
                        "found {}",
                        field, values.first, fields_.model.empty() ? "" : " of ", fields_.model,
                        values.second);
    }
  }
  return ok_status();
}

Result<Tier> Profile::tier_within(double kl) const {
  for (Tier tier : {Tier::small, Tier::balanced, Tier::high}) {
    const double expected = this->tier(tier).kl;
    if (expected > 0 && expected <= kl) return tier;
  }
  const double finest = tier(Tier::high).kl;
  if (finest == 0)
    return make_error(ErrorCode::invalid_argument, "the profile does not know the KL of its tiers");
  return make_error(ErrorCode::invalid_argument,
                    "no calibrated tier has a KL of at most {}: high has {}; tier int8 or exact "
                    "keeps more",
                    kl, finest);
}

}  // namespace kvcodec
