// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "kvcodec/profile.h"

namespace kvcodec {

namespace {

constexpr size_t kDigits = 16;
constexpr std::string_view kHeightMark = "-h";

// "-h512" at the end of a name, taken off it: 512. 0: there is none; nothing: it is malformed.
// Digests' digits end before 'g', so the mark cannot be a part of one.
std::optional<uint32_t> take_height(std::string_view& name) {
  const size_t at = name.rfind(kHeightMark);
  if (at == std::string_view::npos) return 0;
  const std::string_view digits = name.substr(at + kHeightMark.size());
  uint32_t height = 0;
  const auto [end, failed] = std::from_chars(digits.begin(), digits.end(), height);
  if (failed != std::errc{} || end != digits.end() || digits.front() == '0') return std::nullopt;
  if (height % 8 != 0 || height < 144 || height > 8192) return std::nullopt;
  name = name.substr(0, at);
  return height;
}

}  // namespace

std::string rendition_name(Tier tier, const Profile* profile, uint32_t picture_height) {
  std::string name = tier_name(tier);
  if (is_calibrated(tier)) name += fmt::format("-{}", to_hex(profile->digest()).substr(0, kDigits));
  if (picture_height > 0) name += fmt::format("{}{}", kHeightMark, picture_height);
  return name;
}

Result<Rendition> parse_rendition(std::string_view name) {
  std::string_view rest = name;
  const auto height = take_height(rest);
  const size_t dash = std::min(rest.find('-'), rest.size());
  auto tier = tier_from_name(rest.substr(0, dash));
  const std::string_view digits = rest.substr(std::min(dash + 1, rest.size()));
  const bool hex = std::all_of(digits.begin(), digits.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  if (height && tier.ok() && hex && digits.size() == (is_calibrated(*tier) ? kDigits : 0) &&
      (is_calibrated(*tier) || dash == rest.size()))
    return Rendition{*tier, std::string(digits), *height};
  return make_error(ErrorCode::invalid_argument,
                    "rendition: expected exact, int8, or high, balanced or small with - and the "
                    "first 16 digits of a profile's digest, then maybe -h and a picture height, a "
                    "multiple of 8 in [144, 8192]; found \"{}\"",
                    name);
}

}  // namespace kvcodec
