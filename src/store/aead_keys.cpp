// SPDX-License-Identifier: Apache-2.0
#include "store/aead_keys.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "store/posix_file.h"

namespace kvcodec {
namespace {

constexpr size_t kMaxFileBytes = 64 << 10;
constexpr size_t kMaxKeys = 100;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

}  // namespace

AeadKey::AeadKey(const std::array<std::byte, kBytes>& bytes) : bytes_(bytes) {
  constexpr std::string_view kPurpose = "kvcodec key id";
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  ::HMAC(EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()),
         reinterpret_cast<const unsigned char*>(kPurpose.data()), kPurpose.size(), digest.data(),
         &size);
  std::transform(digest.begin(), digest.begin() + kIdBytes, id_.begin(),
                 [](unsigned char c) { return std::byte{c}; });
}

AeadKey::~AeadKey() { ::OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

std::string to_hex(const AeadKey::Id& id) {
  std::string text;
  for (const std::byte b : id) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

Result<std::vector<AeadKey>> parse_keys(std::string_view text, std::string_view where) {
  std::vector<AeadKey> keys;
  for (size_t at = 0, line_number = 1; at < text.size(); ++line_number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    line = trim(line.substr(0, line.find('#')));
    at = end + 1;
    if (line.empty()) continue;
    std::array<std::byte, AeadKey::kBytes> bytes;
    bool good = line.size() == 2 * bytes.size() && keys.size() < kMaxKeys;
    for (size_t i = 0; good && i < bytes.size(); ++i) {
      const int high = hex_digit(line[2 * i]), low = hex_digit(line[2 * i + 1]);
      good = high >= 0 && low >= 0;
      bytes[i] = static_cast<std::byte>(high * 16 + low);
    }
    if (!good) {
      return make_error(ErrorCode::invalid_argument,
                        "{}, line {}: expected a key of 64 hexadecimal digits (openssl rand -hex "
                        "32), at most {} keys; found {} characters",
                        where, line_number, kMaxKeys, line.size());
    }
    keys.emplace_back(bytes);
    ::OPENSSL_cleanse(bytes.data(), bytes.size());
  }
  if (keys.empty()) {
    return make_error(ErrorCode::invalid_argument, "{}: expected a key, found none", where);
  }
  return keys;
}

Result<std::vector<AeadKey>> load_keys(const std::string& path) {
  std::string file = path;
  if (file.empty()) {
    const char* named = std::getenv("KVCODEC_KEY_FILE");
    const char* key = std::getenv("KVCODEC_KEY");
    if (named != nullptr && *named != '\0') {
      file = named;
    } else if (key != nullptr && *key != '\0') {
      return parse_keys(key, "KVCODEC_KEY");
    } else {
      return std::vector<AeadKey>{};
    }
  }
  const UniqueFd fd = open_at(AT_FDCWD, file.c_str(), O_RDONLY);
  if (!fd.valid()) return os_error(errno, "open key file", file);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return os_error(errno, "stat key file", file);
  if (S_ISREG(info.st_mode) && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return make_error(ErrorCode::invalid_argument,
                      "key file {}: mode {:03o}; expected one that only its owner may read (chmod "
                      "600)",
                      file, info.st_mode & 0777);
  }
  std::string text(kMaxFileBytes + 1, '\0');
  KVCODEC_TRY(const size_t n, read_at(fd.get(), std::as_writable_bytes(std::span(text)), 0, file));
  if (n > kMaxFileBytes) {
    return make_error(ErrorCode::invalid_argument, "key file {}: expected at most {} bytes", file,
                      kMaxFileBytes);
  }
  auto keys = parse_keys(std::string_view(text).substr(0, n), fmt::format("key file {}", file));
  ::OPENSSL_cleanse(text.data(), text.size());
  return keys;
}

}  // namespace kvcodec
