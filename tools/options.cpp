// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <fmt/format.h>

#include <charconv>

namespace kvcodec::tools {

namespace {

// A whole string as a number, or false.
template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc{} && end == text.data() + text.size();
}

}  // namespace

Result<uint64_t> parse_bytes(const std::string& text) {
  static constexpr std::string_view kUnits = "KMGT";
  std::string_view digits = text;
  uint64_t scale = 1;
  if (!digits.empty()) {
    const size_t unit = kUnits.find(digits.back());
    if (unit != std::string_view::npos) {
      scale = uint64_t{1} << (10 * (unit + 1));
      digits.remove_suffix(1);
    }
  }
  uint64_t value = 0;
  if (!parse_number(digits, value) || __builtin_mul_overflow(value, scale, &value)) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("size: expected a number with K, M, G or T, found '{}'", text)};
  }
  return value;
}

Result<Rope> parse_rope(const std::string& text, uint32_t key_dim) {
  if (text == "none") return Rope{};
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(':', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  double base = 0;
  uint32_t dims = key_dim;
  const bool formed = (parts.size() == 2 || parts.size() == 3) &&
                      (parts[0] == "interleaved" || parts[0] == "neox") &&
                      parse_number(parts[1], base) &&
                      (parts.size() == 2 || parse_number(parts[2], dims));
  if (!formed || dims > key_dim) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("rope: expected none, interleaved:BASE[:DIMS] or neox:BASE[:DIMS] "
                             "with DIMS at most {}, found '{}'",
                             key_dim, text)};
  }
  return make_rope(parts[0] == "neox" ? Rope::Style::neox : Rope::Style::interleaved, dims, base);
}

Result<std::string> complete_rendition(const std::string& text, const Profile* profile) {
  const size_t height = std::min(text.rfind("-h"), text.size());
  const auto tier = tier_from_name(text.substr(0, height));
  if (!tier.ok() || !is_calibrated(*tier)) return text;
  if (profile == nullptr) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("tier {} needs a profile: --profile FILE", text)};
  }
  return rendition_name(*tier, profile) + text.substr(height);
}

void ProfileFlag::add_to(CLI::App& command) {
  command.add_option("--profile", path,
                     "high, balanced, small: the model's profile (.safetensors), by kvcodec "
                     "calibrate, or identity");
}

Result<std::shared_ptr<const Profile>> ProfileFlag::load(const KvShape* shape,
                                                         const Rope& rope) const {
  if (path.empty()) return std::shared_ptr<const Profile>{};
  if (path == "identity" && shape == nullptr) {
    return Error{ErrorCode::invalid_argument,
                 "--profile identity is for cache files; with a model, name its profile"};
  }
  KVCODEC_TRY(Profile loaded,
              path == "identity" ? Profile::identity(*shape, rope) : Profile::load(path));
  return std::shared_ptr<const Profile>(std::make_shared<Profile>(std::move(loaded)));
}

void EncodeFlags::add_to(CLI::App& command) {
  command.add_option("--tier", tier, "exact, int8, high, balanced or small")->capture_default_str();
  profile.add_to(command);
  command
      .add_option("--noise-factor", noise_factor,
                  "high, balanced, small: a chunk of more noise than this many times the expected "
                  "gets a finer tier; 0: never")
      ->capture_default_str();
  command
      .add_option("--rope", rope,
                  "how keys were rotated: none, interleaved:BASE[:DIMS], neox:BASE[:DIMS]")
      ->capture_default_str();
  command.add_option("--sinks", sink_tokens, "leading tokens kept exactly, but in tier exact")
      ->capture_default_str();
  command.add_option("--picture-height", picture_height, "largest picture height, multiple of 8")
      ->capture_default_str();
  command.add_option("--threads", threads, "threads; 0: all cores")->capture_default_str();
  command.add_flag("--no-verify", no_verify, "do not decode again what was encoded");
}

Result<EncodeOptions> EncodeFlags::resolve(uint32_t key_dim, const Profile* loaded) const {
  EncodeOptions options;
  KVCODEC_TRY(options.tier, tier_from_name(tier));
  if (is_calibrated(options.tier) && loaded == nullptr) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("tier {} needs a profile: --profile FILE", tier)};
  }
  options.profile = loaded;
  options.noise_factor = noise_factor;
  KVCODEC_TRY(options.rope, parse_rope(rope, key_dim));
  options.sink_tokens = sink_tokens;
  options.max_picture_height = picture_height;
  options.threads = threads;
  options.verify = !no_verify;
  return options;
}

void StoreFlags::add_to(CLI::App& command) {
  command
      .add_option(
          "--store", uri,
          "where objects are: file:///path, redis://host, s3://bucket/prefix, https://host/path, "
          "tiered:?level=... (docs/stores.md)")
      ->required();
}

void StoreFlags::add_bound_to(CLI::App& command) {
  command
      .add_option(
          "--max-bytes", max_bytes,
          "bound of the store; least recently used objects are evicted (512M, 20G); 0: none")
      ->capture_default_str();
}

Result<std::unique_ptr<Store>> StoreFlags::open() const {
  StoreOptions options;
  KVCODEC_TRY(options.max_bytes, parse_bytes(max_bytes));
  return open_store(uri, options);
}

}  // namespace kvcodec::tools
