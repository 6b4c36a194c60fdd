// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "codec/chunk_encoder.h"
#include "codec/chunk_plan.h"
#include "codec/pending_chunk.h"
#include "transform/rotation.h"

namespace kvcodec {

// One chunk on its way from a cache to an object, layer by layer: tiers exact and int8, and an
// identity profile's. The stages that touch the cache are virtual: another kind of memory has its
// own, with the same results bit for bit.
class LayeredEncoder : public PendingChunk {
 public:
  LayeredEncoder(const KvSource& source, TokenRange range, int threads, const EncoderTuning& tuning,
                 format::Header header);
  Status quantise();
  Status compare(const DecodedChunk& decoded) const override;

 protected:
  // Fills contents_, escapes_ and what of header_ follows from the values.
  virtual Status fill_pictures();
  // Fills noise and relative_error of header_.groups.
  virtual Status measure();

  const KvSource& source_;
  const TokenRange range_;
  const int threads_;
  const EncoderTuning tuning_;
  const std::vector<GroupPlan> groups_;
  std::vector<std::vector<format::Escape>> escapes_;  // one a group
  const transform::RotationTable turns_;

 private:
  std::vector<std::byte> gather(const GroupPlan& plan) const;
  Status compare(const GroupPlan& plan, std::span<const std::byte> wanted,
                 std::span<const std::byte> restored) const;
  size_t compare_layer(const GroupPlan& plan, uint32_t layer, std::span<const std::byte> wanted,
                       std::span<const std::byte> restored) const;
  Error differs(const GroupPlan& plan, size_t value) const;
};

// The encoder of a request that passed check_request(): steps of an identity profile's tier.
EncoderTuning identity_tuning(const EncodeOptions& options, const EncoderTuning& tuning);

}  // namespace kvcodec
