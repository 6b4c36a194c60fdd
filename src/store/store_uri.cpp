// SPDX-License-Identifier: Apache-2.0
#include "store/store_uri.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace kvcodec {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc{} && end == text.data() + text.size();
}

// Cuts `text` at the first `mark`: what is before it; `text` keeps what is after it.
std::string_view cut(std::string_view& text, char mark) {
  const size_t at = std::min(text.find(mark), text.size());
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return before;
}

class Parser {
 public:
  explicit Parser(std::string_view uri) : text_(uri) { uri_.shown = redact_uri(uri); }

  Result<StoreUri> parse() {
    const size_t colon = text_.find(':');
    if (colon == std::string_view::npos) return bad("it has no scheme");
    uri_.scheme = text_.substr(0, colon);
    std::string_view rest = text_.substr(colon + 1);
    if (rest.find_first_of(std::string_view("#\0", 2)) != std::string_view::npos) {
      return bad("'#' and zero bytes have no meaning here; write %23 for '#'");
    }
    const size_t mark = rest.find('?');
    const std::string_view query = mark == std::string_view::npos ? "" : rest.substr(mark + 1);
    rest = rest.substr(0, mark);
    if (rest.starts_with("//")) {
      const size_t slash = std::min(rest.find('/', 2), rest.size());
      KVCODEC_CHECK(parse_authority(rest.substr(2, slash - 2)));
      rest.remove_prefix(slash);
    }
    uri_.raw_path = rest;
    KVCODEC_TRY(uri_.path, decode(rest));
    KVCODEC_CHECK(parse_query(query));
    return std::move(uri_);
  }

 private:
  Error bad(std::string_view why) const {
    return make_error(ErrorCode::invalid_argument, "store URI '{}': {}", uri_.shown, why);
  }

  Result<std::string> decode(std::string_view text) const {
    auto decoded = percent_decode(text);
    if (!decoded) return bad("'%' must be followed by two hexadecimal digits, not 00");
    return *std::move(decoded);
  }

  Status parse_authority(std::string_view text) {
    uri_.has_authority = true;
    if (const size_t at = text.rfind('@'); at != std::string_view::npos) {
      std::string_view login = text.substr(0, at);
      KVCODEC_TRY(uri_.user, decode(cut(login, ':')));
      KVCODEC_TRY(uri_.password, decode(login));
      text.remove_prefix(at + 1);
    }
    std::string_view port;
    if (text.starts_with('[')) {  // an IPv6 address
      const size_t close = text.find(']');
      if (close == std::string_view::npos) return bad("'[' without ']'");
      port = text.substr(close + 1);
      text = text.substr(1, close - 1);
    } else {
      const size_t colon = std::min(text.find(':'), text.size());
      port = text.substr(colon);
      text = text.substr(0, colon);
    }
    KVCODEC_TRY(uri_.host, decode(text));
    if (port.empty()) return ok_status();
    port.remove_prefix(1);
    if (!parse_number(port, uri_.port) || uri_.port == 0) {
      return bad(
          "expected a port of 1 to 65535 after the host; '/', '?' and '@' in passwords are "
          "written %2F, %3F and %40");
    }
    return ok_status();
  }

  Status parse_query(std::string_view query) {
    while (!query.empty()) {
      std::string_view value = cut(query, '&');
      KVCODEC_TRY(std::string name, decode(cut(value, '=')));
      KVCODEC_TRY(std::string decoded, decode(value));
      uri_.params.emplace_back(std::move(name), std::move(decoded));
    }
    return ok_status();
  }

  std::string_view text_;
  StoreUri uri_;
};

// Options whose values are no secrets. Those that hold URIs are redacted within.
bool is_public_option(std::string_view name) {
  static constexpr std::string_view kPublic[] = {"anonymous",
                                                 "ca",
                                                 "connect_timeout",
                                                 "connections",
                                                 "deadline",
                                                 "max_bytes",
                                                 "part_bytes",
                                                 "path_style",
                                                 "prefix",
                                                 "profile",
                                                 "promote",
                                                 "promote_max_bytes",
                                                 "region",
                                                 "stall_timeout",
                                                 "ttl",
                                                 "write",
                                                 "queue_bytes",
                                                 "multipart_bytes"};
  return std::find(std::begin(kPublic), std::end(kPublic), name) != std::end(kPublic);
}

std::string redact_query(std::string_view query) {
  std::string shown;
  while (!query.empty()) {
    std::string_view value = cut(query, '&');
    const std::string_view name = cut(value, '=');
    shown += shown.empty() ? '?' : '&';
    // A bare word may be a token.
    shown += value.empty() && !is_public_option(name) ? "***" : name;
    if (value.empty()) continue;
    shown += '=';
    if (is_public_option(name)) {
      shown += value;
    } else if (name == "level" || name == "endpoint") {
      const auto nested = percent_decode(value);
      shown += nested ? redact_uri(*nested) : "***";
    } else {
      shown += "***";
    }
  }
  return shown;
}

}  // namespace

std::string redact_uri(std::string_view uri) {
  const size_t mark = std::min(uri.find('?'), uri.size());
  std::string_view front = uri.substr(0, mark), query = uri.substr(mark);
  std::string shown;
  // A password that was not quoted as it should be may hold '/' or '?': up to the last '@', all is
  // taken for the login.
  const size_t colon = uri.find(':');
  const size_t at = uri.rfind('@');
  if (colon != std::string_view::npos && uri.substr(colon).starts_with("://") &&
      at != std::string_view::npos && at > colon) {
    const std::string_view login = uri.substr(colon + 3, at - colon - 3);
    shown = std::string(uri.substr(0, colon + 3));
    shown += login.substr(0, login.find_first_of(":/?"));
    shown += ":***";
    front = uri.substr(at);
    const size_t later = std::min(front.find('?'), front.size());
    query = front.substr(later);
    front = front.substr(0, later);
  }
  shown += front;
  if (!query.empty()) shown += redact_query(query.substr(1));
  // Whatever else is there, a message stays one line of text.
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return shown;
}

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

std::string percent_encode(std::string_view text, bool keep_slash) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (keep_slash && c == '/');
    if (plain) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

Result<StoreUri> parse_store_uri(std::string_view uri) { return Parser(uri).parse(); }

std::optional<std::string> UriParams::take(std::string_view name) {
  const std::vector<std::string> values = take_all(name);
  if (values.size() > 1) repeated_ = name;
  if (values.empty()) return std::nullopt;
  return values.front();
}

std::vector<std::string> UriParams::take_all(std::string_view name) {
  known_.emplace_back(name);
  std::vector<std::string> values;
  for (size_t i = 0; i < uri_.params.size(); ++i) {
    if (uri_.params[i].first != name) continue;
    taken_[i] = true;
    values.push_back(uri_.params[i].second);
  }
  return values;
}

Status UriParams::take_number(std::string_view name, uint64_t lowest, uint64_t highest,
                              uint64_t& value) {
  const auto text = take(name);
  if (!text) return ok_status();
  uint64_t number = 0;
  if (!parse_number(*text, number) || number < lowest || number > highest) {
    return bad(name, fmt::format("a number of {} to {}", lowest, highest), *text);
  }
  value = number;
  return ok_status();
}

Status UriParams::take_bytes(std::string_view name, uint64_t& value) {
  static constexpr std::string_view kUnits = "KMGT";
  const auto text = take(name);
  if (!text) return ok_status();
  std::string_view digits = *text;
  uint64_t scale = 1;
  if (!digits.empty()) {
    if (const size_t unit = kUnits.find(digits.back()); unit != std::string_view::npos) {
      scale = uint64_t{1} << (10 * (unit + 1));
      digits.remove_suffix(1);
    }
  }
  uint64_t number = 0;
  if (!parse_number(digits, number) || __builtin_mul_overflow(number, scale, &number)) {
    return bad(name, "a number with K, M, G or T", *text);
  }
  value = number;
  return ok_status();
}

Status UriParams::take_seconds(std::string_view name, std::chrono::milliseconds& value) {
  constexpr double kLongest = 1e9;
  const auto text = take(name);
  if (!text) return ok_status();
  double seconds = 0;
  if (!parse_number(std::string_view(*text), seconds) || !(seconds >= 0 && seconds <= kLongest)) {
    return bad(name, "seconds", *text);
  }
  value = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  return ok_status();
}

Status UriParams::take_bool(std::string_view name, bool& value) {
  const auto text = take(name);
  if (!text) return ok_status();
  if (*text != "true" && *text != "false") return bad(name, "true or false", *text);
  value = *text == "true";
  return ok_status();
}

Status UriParams::take_network(StoreOptions& options) {
  KVCODEC_CHECK(take_seconds("connect_timeout", options.connect_timeout));
  KVCODEC_CHECK(take_seconds("stall_timeout", options.stall_timeout));
  KVCODEC_CHECK(take_seconds("deadline", options.deadline));
  uint64_t connections = options.connections;
  KVCODEC_CHECK(take_number("connections", 1, 1024, connections));
  options.connections = static_cast<uint32_t>(connections);
  if (auto ca = take("ca")) options.ca_file = *std::move(ca);
  if (options.connections == 0 || options.connect_timeout.count() <= 0 ||
      options.stall_timeout.count() <= 0 || options.deadline.count() < 0) {
    return make_error(ErrorCode::invalid_argument,
                      "store '{}': expected at least one connection and positive timeouts, found "
                      "{} connections, {} ms to connect, {} ms of standstill, {} ms in all",
                      uri_.shown, options.connections, options.connect_timeout.count(),
                      options.stall_timeout.count(), options.deadline.count());
  }
  return ok_status();
}

std::vector<std::pair<std::string, std::string>> UriParams::rest() {
  std::vector<std::pair<std::string, std::string>> left;
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (!taken_[i]) left.push_back(uri_.params[i]);
    taken_[i] = true;
  }
  return left;
}

Status UriParams::finish() const {
  if (!repeated_.empty()) {
    return make_error(ErrorCode::invalid_argument, "store URI '{}': option {} is there twice",
                      uri_.shown, repeated_);
  }
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i]) continue;
    // The unknown option may be a password that was not quoted: its name is not printed either.
    return make_error(ErrorCode::invalid_argument,
                      "store URI '{}': unknown option at place {} of the query; it may have {}",
                      uri_.shown, i + 1,
                      known_.empty() ? "none" : fmt::format("{}", fmt::join(known_, ", ")));
  }
  return ok_status();
}

Error UriParams::bad(std::string_view name, std::string_view expected,
                     std::string_view found) const {
  return make_error(ErrorCode::invalid_argument, "store URI '{}': {}: expected {}, found '{}'",
                    uri_.shown, name, expected, found);
}

}  // namespace kvcodec
