// SPDX-License-Identifier: Apache-2.0
#include "store/store_name.h"

#include "base/error.h"

namespace kvcodec {
namespace {

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '/' ||
         c == '-';
}

}  // namespace

Status validate_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return make_error(ErrorCode::invalid_argument, "object name of {} bytes; expected 1 to {}",
                      name.size(), kMaxNameBytes);
  }
  // Bytes first: after this the name may be printed.
  for (size_t i = 0; i < name.size(); ++i) {
    if (!is_name_byte(name[i])) {
      return make_error(ErrorCode::invalid_argument,
                        "object name has byte 0x{:02x} at {}; expected [a-z0-9._/-]",
                        static_cast<unsigned char>(name[i]), i);
    }
  }
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") {
      return make_error(ErrorCode::invalid_argument,
                        "object name '{}' has the part '{}' at {}; parts may not be empty, '.' or "
                        "'..'",
                        name, part, begin);
    }
    begin = end + 1;
  }
  return ok_status();
}

}  // namespace kvcodec
