// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "codec/chunk_encoder.h"
#include "format/header.h"

namespace kvcodec {

// invalid_argument for what cannot become a chunk; the limits are those of docs/format.md.
Status check_request(const KvSource& source, TokenRange range, const ChunkId& id,
                     const EncodeOptions& options);

// The header of a chunk before its content is known: arrays sized, pictures laid out.
format::Header start_header(const KvShape& shape, uint32_t tokens, const ChunkId& id,
                            const EncodeOptions& options, const EncoderTuning& tuning);

}  // namespace kvcodec
