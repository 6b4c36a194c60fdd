// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcodec/fetch.h"

namespace kvcodec::tools {

// The baseline "raw reuse": chunks stored as their uncompressed bytes, canonical order, rendition
// "raw". For comparisons only: such objects carry no checksum and no identity.
Result<uint64_t> publish_raw(Store& store, const Digest& ns, std::span<const int32_t> tokens,
                             const KvSource& source, uint32_t chunk_tokens);
Result<FetchReport> fetch_raw(Store& store, const Digest& ns, std::span<const int32_t> tokens,
                              const KvTarget& target, uint32_t chunk_tokens);

}  // namespace kvcodec::tools
