// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "codec/chunk_decoder.h"
#include "codec/chunk_encoder.h"
#include "codec/chunk_plan.h"
#include "codec/picture_coder.h"

namespace kvcodec {

// A chunk between quantising and the object: its samples are final, its pictures are not coded.
// Those of several chunks are coded together.
class PendingChunk {
 public:
  PendingChunk(format::Header header, const Profile* profile)
      : header_(std::move(header)), profile_(profile) {}
  virtual ~PendingChunk() = default;

  format::Header& header() { return header_; }
  std::vector<PictureContent>& contents() { return contents_; }
  const Profile* profile() const { return profile_; }  // that restoring needs, or null

  // Compares what a reader restores from the object with the source. internal where it differs.
  virtual Status compare(const DecodedChunk& decoded) const = 0;

 protected:
  format::Header header_;
  std::vector<PictureContent> contents_;  // one a picture

 private:
  const Profile* profile_;
};

// Codes the pictures of all chunks together, and verifies their objects where options.verify.
EncodedChunks finish_chunks(std::span<const std::unique_ptr<PendingChunk>> pending,
                            const EncodeOptions& options,
                            const EncodePictures& encode = encode_on_host);

// Both require that the request was checked, and borrow the source.
Result<std::unique_ptr<PendingChunk>> prepare_chunk(const KvSource& source, TokenRange range,
                                                    const ChunkId& id, const EncodeOptions& options,
                                                    const EncoderTuning& tuning);
// Of a calibrated tier whose profile has a basis. Where no calibrated tier is fine enough, a chunk
// of tier int8.
Result<std::unique_ptr<PendingChunk>> prepare_calibrated(const KvSource& source, TokenRange range,
                                                         const ChunkId& id,
                                                         const EncodeOptions& options);

}  // namespace kvcodec
