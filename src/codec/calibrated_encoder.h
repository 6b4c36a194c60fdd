// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "kvcodec/codec.h"

namespace kvcodec {

// encode_chunk() for the calibrated tiers, the request checked.
Result<std::vector<std::byte>> encode_calibrated(const KvSource& source, TokenRange range,
                                                 const ChunkId& id, const EncodeOptions& options);

}  // namespace kvcodec
