// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "codec/calibrated_tier.h"
#include "codec/pending_chunk.h"
#include "kvcodec/codec.h"

namespace kvcodec {

// Those of a chunk at tier int8, for a chunk that no calibrated tier suits.
EncodeOptions int8_instead(const EncodeOptions& options);

// One chunk on its way from a cache to an object. Components are kept from the analysis on, so
// that a finer tier costs no second one. The stages that touch the cache are virtual: another kind
// of memory has its own, with the same results bit for bit.
class CalibratedEncoder : public PendingChunk {
 public:
  CalibratedEncoder(const KvSource& source, TokenRange range, const EncodeOptions& options,
                    format::Header header);

  // Codes at options.tier or the finest that is needed; false where none is fine enough.
  Result<bool> quantise();
  // Once quantise() has found a tier. What only that needed is freed.
  void fill_pictures();
  // The distance from the source must be what was measured.
  Status compare(const DecodedChunk& decoded) const override;

 protected:
  // Adds to components_ those that this step needs and no coarser one did; fills header_.sinks.
  virtual Status analyse(double step);
  // Fills samples_, escapes_ and header_.groups, at header_.tier.
  virtual Status quantise_groups();
  // Fills distortions_.
  virtual Status measure();

  // Raises components_[].count to what a step needs; returns what the counts were.
  std::vector<uint32_t> add_components(double step);
  CalibratedContext context() const { return {profile_, header_, plans_, turns_}; }

  const KvSource& source_;
  const TokenRange range_;
  const EncodeOptions options_;
  const Profile& profile_;
  const std::vector<GroupPlan> plans_;  // without pictures, which follow from the codes
  const std::vector<Panel> panels_;
  const transform::RotationTable turns_;
  // One a group.
  std::vector<Components> components_;
  std::vector<std::vector<uint8_t>> samples_;  // [live_rows][tokens]
  std::vector<std::vector<format::Escape>> escapes_;
  std::vector<PanelDistortion> distortions_;  // one a panel

 private:
  std::vector<std::byte> gather(const Panel& panel) const;
  void keep_sinks(const Panel& panel, const std::byte* rows);
  void record(size_t index, format::BasisGroup& group) const;
  double total_noise() const;
  double noise_budget() const;
  bool too_many_escapes() const;
  void fill_pictures(const GroupPlan& plan, const std::vector<uint8_t>& samples);
};

}  // namespace kvcodec
