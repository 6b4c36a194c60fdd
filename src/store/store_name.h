// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "kvcodec/result.h"

namespace kvcodec {

inline constexpr size_t kMaxNameBytes = 255;

// The rule of kvcodec/store.h, the same for every store: 1 to 255 bytes of [a-z0-9._/-], and no
// part between slashes is empty, "." or "..". invalid_argument says which byte or part is wrong.
Status validate_name(std::string_view name);

}  // namespace kvcodec
