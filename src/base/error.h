// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include "kvcodec/result.h"

namespace kvcodec {

// An Error with a formatted message.
template <typename... Args>
Error make_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace kvcodec
