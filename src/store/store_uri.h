// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvcodec/result.h"
#include "kvcodec/store.h"

namespace kvcodec {

// A store URI in its parts, percent-decoded.
struct StoreUri {
  std::string shown;  // redact_uri of it: what messages print
  std::string scheme;
  bool has_authority = false;  // "//" after the colon
  std::string user, password, host;
  uint16_t port = 0;  // 0: none was given
  std::string path;   // as in "file:///path": from the slash; without authority, what is there
  std::string raw_path;
  std::vector<std::pair<std::string, std::string>> params;  // in the order of the query
};

// invalid_argument says what is wrong, without the URI's secrets.
Result<StoreUri> parse_store_uri(std::string_view uri);

// None where a '%' is not followed by two hexadecimal digits, or stands for a zero byte.
std::optional<std::string> percent_decode(std::string_view text);
// All but letters, digits and "-._~" becomes %XX, but '/' only if asked.
std::string percent_encode(std::string_view text, bool keep_slash = false);

// Takes options out of a URI's query, each once. What nobody has taken is unknown: finish().
class UriParams {
 public:
  explicit UriParams(const StoreUri& uri) : uri_(uri), taken_(uri.params.size(), false) {}

  // The value of an option that may be given once; none where it is not there.
  std::optional<std::string> take(std::string_view name);
  std::vector<std::string> take_all(std::string_view name);
  // These leave `value` alone where the option is not there. Numbers are lowest to highest.
  Status take_number(std::string_view name, uint64_t lowest, uint64_t highest, uint64_t& value);
  Status take_bytes(std::string_view name, uint64_t& value);  // 512M, 20G
  Status take_seconds(std::string_view name, std::chrono::milliseconds& value);
  Status take_bool(std::string_view name, bool& value);
  // The options of StoreOptions that all stores behind a network have.
  Status take_network(StoreOptions& options);
  // What nobody has taken, in order; from then on it is taken.
  std::vector<std::pair<std::string, std::string>> rest();
  // The first error of the calls above, or invalid_argument for an option nobody took.
  Status finish() const;

 private:
  Error bad(std::string_view name, std::string_view expected, std::string_view found) const;

  const StoreUri& uri_;
  std::vector<bool> taken_;
  std::vector<std::string> known_;
  std::string repeated_;
};

}  // namespace kvcodec
