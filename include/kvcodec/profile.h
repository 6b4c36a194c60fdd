// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/codec.h"
#include "kvcodec/key.h"
#include "kvcodec/kv.h"
#include "kvcodec/result.h"

namespace kvcodec {

// What the calibrated tiers know of a model: which directions its cache varies in, and how much
// noise in each costs. docs/profile.md has the file and the mathematics. A value x of a *group*
// (consecutive layers of one kind; keys un-rotated; channels in natural order) becomes
//   y = S M (x - mean)          and comes back as          x = mean + S^T y,
// S M S^T = I, so that noise of one size in any component of any group costs the same, and one
// step does for all of them.

inline constexpr Tier kCalibratedTiers[] = {Tier::high, Tier::balanced, Tier::small};
// Index of a calibrated tier in the arrays below. Requires is_calibrated(tier).
inline constexpr size_t tier_index(Tier tier) {
  return static_cast<size_t>(tier) - static_cast<size_t>(Tier::high);
}

struct ProfileTier {
  double step = 0;            // above 0. Identity: in root mean squares of a layer's values
  double dead_zone = 0.5;     // code = sign(y) floor(|y| / step + 1 - dead_zone); 0.5 to 1
  double bits_per_value = 0;  // expected, of whole objects; 0: not known
  double kl = 0;              // expected, of the continuation, in nats a token; 0: not known
};

struct ProfileGroup {
  KvKind kind = KvKind::key;
  uint32_t first_layer = 0, layers = 0;
  uint32_t components = 0;      // R, 1 to C = layers * shape.channels(kind)
  std::vector<float> mean;      // [C]
  std::vector<float> basis;     // S: [R][C], rows by descending variance
  std::vector<float> metric;    // M: [C], its diagonal, or [layers * kv_heads][d][d], its blocks
  std::vector<float> variance;  // [R], of y: mean squares over the calibration
  // By tier (tier_index): noise of a chunk of the calibration's kind, as GroupDistortion::noise
  // has it; 0: not known, and chunks are not compared with it.
  std::array<float, 3> expected_noise{};
  bool block_metric() const { return metric.size() != mean.size(); }
};

struct ProfileFields {
  // identity: no groups; every layer is a group of its own with S = M = I, whose mean and scale a
  // chunk stores itself. Worse than calibrated by a factor, and needs nothing known of the model.
  enum class Kind : uint8_t { calibrated, identity };
  Kind kind = Kind::calibrated;
  std::string model;  // for people
  Digest weights;     // SHA-256 of the weights' bytes; zeros: any
  KvShape shape;      // dtype apart: a profile serves all of them
  Rope rope;          // how keys are un-rotated; style none: they stay as they are
  std::array<ProfileTier, 3> tiers{};
  std::string calibration = "{}";    // JSON: texts, tokens, licences
  std::vector<ProfileGroup> groups;  // those of K by layer, then those of V; together every layer
};

// The file's bytes (safetensors). Deterministic. invalid_argument names the first field that
// Profile::parse would refuse. The basis is rounded to binary16 with one binary32 factor a channel.
Result<std::vector<std::byte>> serialise_profile(const ProfileFields& fields);

struct ProfileLimits {
  uint64_t max_bytes = uint64_t{8} << 30;  // of the file
};

// A profile as read from its bytes. Immutable: any number of threads may use one.
class Profile {
 public:
  // Checks everything before it is used: sizes before they are allocated, every number finite,
  // shapes against the model's, layers covered once. corrupt (unsupported for a newer profile
  // version) names the tensor or field, expected and found. not_found and io as files have them.
  static Result<Profile> load(const std::string& path, const ProfileLimits& limits = {});
  static Result<Profile> parse(std::span<const std::byte> file, const ProfileLimits& limits = {});
  // What needs no calibration. invalid_argument for a shape or rope that makes no sense.
  static Result<Profile> identity(const KvShape& shape, const Rope& rope,
                                  const std::string& model = "");

  const ProfileFields& fields() const { return fields_; }
  bool is_identity() const { return fields_.kind == ProfileFields::Kind::identity; }
  const KvShape& shape() const { return fields_.shape; }
  const Rope& rope() const { return fields_.rope; }
  std::span<const ProfileGroup> groups() const { return fields_.groups; }
  // Requires is_calibrated(tier).
  const ProfileTier& tier(Tier tier) const { return fields_.tiers[tier_index(tier)]; }
  const Digest& digest() const { return digest_; }  // SHA-256 of the file
  // invalid_argument where this is the profile of another model's shape. dtype is not compared.
  Status check_shape(const KvShape& shape) const;
  // The coarsest calibrated tier whose expected KL is at most `kl`. invalid_argument where there
  // is none, or the profile knows no KL.
  Result<Tier> tier_within(double kl) const;

 private:
  Profile(ProfileFields fields, const Digest& digest)
      : fields_(std::move(fields)), digest_(digest) {}
  ProfileFields fields_;
  Digest digest_;
};

// A rendition's name in a store: "exact", "int8", or a calibrated tier and its profile,
// "balanced-0123456789abcdef" (the first 16 digits of the digest), then "-h512" where its pictures
// are at most 512 rows high rather than EncodeOptions' default. Its chunks are of that tier or of a
// finer one, where a chunk was too far off the profile.
struct Rendition {
  Tier tier = Tier::exact;
  std::string profile;          // 16 digits; empty for exact and int8
  uint32_t picture_height = 0;  // 0: the default
};
// Requires a profile where the tier is calibrated; it is not looked at otherwise. picture_height:
// 0, or as EncodeOptions::max_picture_height.
std::string rendition_name(Tier tier, const Profile* profile, uint32_t picture_height = 0);
// invalid_argument where it is neither.
Result<Rendition> parse_rendition(std::string_view name);

}  // namespace kvcodec
