// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "base/error.h"
#include "kvcodec/store.h"
#include "store/file_store.h"
#include "store/memory_store.h"

namespace kvcodec {
namespace {

constexpr std::string_view kKnownSchemes = "mem:, file:";

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// None where a '%' is not followed by two hexadecimal digits, or stands for a zero byte.
std::optional<std::string> percent_decode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0 || high + low == 0) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

// The path of "file:///path" (RFC 8089), percent-decoded.
Result<std::string> parse_file_uri(std::string_view uri, std::string_view rest) {
  if (!rest.starts_with("///")) {
    return make_error(ErrorCode::invalid_argument,
                      "store URI '{}': expected file:///absolute/path, without a host", uri);
  }
  const std::string_view path = rest.substr(2);
  if (path.find_first_of(std::string_view("?#\0", 3)) != std::string_view::npos) {
    return make_error(ErrorCode::invalid_argument,
                      "store URI '{}': '?', '#' and zero bytes have no meaning here; write %3F or "
                      "%23 for a path that has one",
                      uri);
  }
  auto decoded = percent_decode(path);
  if (!decoded) {
    return make_error(ErrorCode::invalid_argument,
                      "store URI '{}': '%' must be followed by two hexadecimal digits, not 00",
                      uri);
  }
  return *std::move(decoded);
}

}  // namespace

Result<std::unique_ptr<Store>> open_store(std::string_view uri, const StoreOptions& options) {
  const size_t colon = uri.find(':');
  if (colon == std::string_view::npos) {
    return make_error(ErrorCode::invalid_argument,
                      "store URI '{}' has no scheme; this build knows {}", uri, kKnownSchemes);
  }
  const std::string_view scheme = uri.substr(0, colon), rest = uri.substr(colon + 1);
  if (scheme == "mem") {
    if (!rest.empty()) {
      return make_error(ErrorCode::invalid_argument, "store URI '{}': expected just mem:", uri);
    }
    return std::unique_ptr<Store>(std::make_unique<MemoryStore>(options));
  }
  if (scheme == "file") {
    KVCODEC_TRY(const std::string path, parse_file_uri(uri, rest));
    FileStoreOptions file_options;
    file_options.max_bytes = options.max_bytes;
    KVCODEC_TRY(auto store, FileStore::open(path, file_options));
    return std::unique_ptr<Store>(std::move(store));
  }
  return make_error(ErrorCode::unsupported, "store URI '{}': unknown scheme; this build knows {}",
                    uri, kKnownSchemes);
}

}  // namespace kvcodec
