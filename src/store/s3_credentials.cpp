// SPDX-License-Identifier: Apache-2.0
#include "store/s3_credentials.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>

#include "base/error.h"

namespace kvcodec {
namespace {

using Section = std::map<std::string, std::string>;
constexpr std::streamoff kMaxFileBytes = 1 << 20;

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// One section of an INI file as AWS's tools write them; none where the file or it is not there.
Result<std::optional<Section>> read_section(const std::string& path, const std::string& name) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return std::optional<Section>{};
  if (file.tellg() > kMaxFileBytes) {
    return make_error(ErrorCode::io, "{}: {} bytes; expected at most {}", path,
                      static_cast<int64_t>(file.tellg()), kMaxFileBytes);
  }
  file.seekg(0);
  std::optional<Section> section;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    const bool nested = line.starts_with(' ') || line.starts_with('\t');  // of an "s3 =" block
    line = trim(line);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line[0] == '[') {
      const std::string title = trim(line.substr(1, line.find(']') - 1));
      inside = title == name;
      if (inside && !section) section.emplace();
      continue;
    }
    const size_t equals = line.find('=');
    if (!inside || nested || equals == std::string::npos) continue;
    (*section)[trim(line.substr(0, equals))] = trim(line.substr(equals + 1));
  }
  if (file.bad()) return make_error(ErrorCode::io, "{}: cannot be read", path);
  return section;
}

std::string value_of(const Section& section, const std::string& name) {
  const auto at = section.find(name);
  return at == section.end() ? "" : at->second;
}

Status take_keys(const std::string& key, const std::string& secret, const std::string& token,
                 const std::string& where, S3Credentials& credentials) {
  if (key.empty() != secret.empty()) {
    return make_error(ErrorCode::invalid_argument, "{}: expected both halves of a key, found {}",
                      where, key.empty() ? "only the secret one" : "no secret one");
  }
  if (!key.empty() && credentials.anonymous()) credentials = {key, secret, token};
  return ok_status();
}

}  // namespace

Result<S3Profile> load_s3_profile(const std::string& named) {
  S3Profile profile;
  profile.region = !env("AWS_REGION").empty() ? env("AWS_REGION") : env("AWS_DEFAULT_REGION");
  profile.endpoint =
      !env("AWS_ENDPOINT_URL_S3").empty() ? env("AWS_ENDPOINT_URL_S3") : env("AWS_ENDPOINT_URL");
  if (named.empty()) {
    KVCODEC_CHECK(take_keys(env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY"),
                            env("AWS_SESSION_TOKEN"), "the environment's AWS_... variables",
                            profile.credentials));
  }
  std::string name = named.empty() ? env("AWS_PROFILE") : named;
  const bool chosen = !name.empty();
  if (!chosen) name = "default";
  const std::string home = env("HOME") + "/.aws/";
  const std::string keys_path = env("AWS_SHARED_CREDENTIALS_FILE").empty()
                                    ? home + "credentials"
                                    : env("AWS_SHARED_CREDENTIALS_FILE");
  const std::string config_path =
      env("AWS_CONFIG_FILE").empty() ? home + "config" : env("AWS_CONFIG_FILE");
  KVCODEC_TRY(const auto keys, read_section(keys_path, name));
  KVCODEC_TRY(const auto config,
              read_section(config_path, name == "default" ? name : "profile " + name));
  for (const auto& [section, path] : {std::pair{&keys, &keys_path}, {&config, &config_path}}) {
    if (!*section) continue;
    const Section& values = **section;
    KVCODEC_CHECK(take_keys(value_of(values, "aws_access_key_id"),
                            value_of(values, "aws_secret_access_key"),
                            value_of(values, "aws_session_token"),
                            fmt::format("{}, profile {}", *path, name), profile.credentials));
    if (profile.region.empty()) profile.region = value_of(values, "region");
    if (profile.endpoint.empty()) profile.endpoint = value_of(values, "endpoint_url");
    if (!profile.credentials.anonymous()) continue;
    for (const char* way : {"credential_process", "sso_session", "sso_start_url", "role_arn"}) {
      if (value_of(values, way).empty()) continue;
      return make_error(ErrorCode::unsupported,
                        "{}, profile {}: {} is not followed; put the keys it gives into the "
                        "environment",
                        *path, name, way);
    }
  }
  if (chosen && !keys && !config && profile.credentials.anonymous()) {
    return make_error(ErrorCode::invalid_argument, "no profile '{}' in {} and {}", name, keys_path,
                      config_path);
  }
  return profile;
}

}  // namespace kvcodec
