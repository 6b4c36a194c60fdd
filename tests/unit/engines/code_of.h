// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "kvcodec/result.h"

namespace kvcodec {

// The error's code; nothing where there is no error, so that a test fails and does not crash.
template <typename T>
std::optional<ErrorCode> code_of(const Result<T>& result) {
  if (result.ok()) return std::nullopt;
  return result.error().code;
}

}  // namespace kvcodec
