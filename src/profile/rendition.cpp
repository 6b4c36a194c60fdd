// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "kvcodec/profile.h"

namespace kvcodec {

namespace {
constexpr size_t kDigits = 16;
}

std::string rendition_name(Tier tier, const Profile* profile) {
  if (!is_calibrated(tier)) return tier_name(tier);
  return fmt::format("{}-{}", tier_name(tier), to_hex(profile->digest()).substr(0, kDigits));
}

Result<Rendition> parse_rendition(std::string_view name) {
  const size_t dash = std::min(name.find('-'), name.size());
  auto tier = tier_from_name(name.substr(0, dash));
  const std::string_view digits = name.substr(std::min(dash + 1, name.size()));
  const bool hex = std::all_of(digits.begin(), digits.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (tier.ok() && hex && digits.size() == (is_calibrated(*tier) ? kDigits : 0) &&
      (is_calibrated(*tier) || dash == name.size()))
    return Rendition{*tier, std::string(digits)};
  return make_error(ErrorCode::invalid_argument,
                    "rendition: expected exact, int8, or high, balanced or small with - and the "
                    "first 16 digits of a profile's digest, found \"{}\"",
                    name);
}

}  // namespace kvcodec
