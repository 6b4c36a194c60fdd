// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvcodec/kv.h"
#include "kvcodec/result.h"

namespace kvcodec::calibration {

// Tokens `tokens` of a cache as binary32, [tokens.count][layers.count * channels] in the natural
// order (layer, head, dim), keys un-rotated. invalid_argument names the first value that is not
// finite. Requires a geometry that validates, and both ranges inside it.
Result<std::vector<float>> unrotated_rows(const KvSource& source, KvKind kind, uint32_t first_layer,
                                          uint32_t layers, TokenRange tokens, const Rope& rope);

}  // namespace kvcodec::calibration
