// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "codec/calibrated_encoder.h"
#include "codec/layered_encoder.h"
#include "publish/group_source.h"

// The encoders of codec/, with the stages that touch the cache done on the device. source.memory is
// device memory.
namespace kvcodec::publish {

// Escapes as kernels find them, in no order and with rows of their group, as the format has them.
std::vector<format::Escape> sorted_escapes(std::span<const EscapeEntry> entries, KvKind kind,
                                           uint32_t first_row);

// Escapes of all groups on the device, `room` of each, beside the host's copy.
class EscapeLists {
 public:
  EscapeLists(PublishDevice& device, size_t groups) : device_(device), groups_(groups) {}
  // Makes room for so many escapes a group. What was there is lost.
  Status reserve(uint32_t room);
  uint32_t room() const { return room_; }
  EscapeEntry* of(size_t group) const;  // device memory
  Result<std::vector<EscapeEntry>> fetch(size_t group, uint32_t count, CUstream stream) const;

 private:
  PublishDevice& device_;
  const size_t groups_;
  uint32_t room_ = 0;
  PooledBuffer<DeviceBuffer> entries_;
};

class LayeredPublish final : public LayeredEncoder {
 public:
  LayeredPublish(PublishDevice& device, const KvSource& source, TokenRange range, int threads,
                 const EncoderTuning& tuning, format::Header header)
      : LayeredEncoder(source, range, threads, tuning, std::move(header)),
        device_(device),
        lists_(device, groups_.size()),
        memory_(device, device.next_stream()) {}

  // Nothing: that the pictures decode to what their checksums say is all that the host can tell.
  Status compare(const DecodedChunk&) const override { return ok_status(); }

 private:
  Status fill_pictures() override;
  Status measure() override;

  // Where a group is in the arrays of all groups.
  struct GroupPlace {
    uint64_t row = 0, layer = 0;          // counted over all groups
    uint64_t pictures = 0, low_bits = 0;  // offsets
    uint64_t picture_bytes = 0, low_bytes = 0;
    uint32_t width = 0;
  };
  void plan_memory();
  uint32_t row_count(size_t group) const { return groups_[group].rows.rows; }
  GroupSource source_of(size_t group) const {
    return group_source(source_, range_, header_, groups_[group], memory_, tables_);
  }
  Status launch_all();
  Status launch_exact(size_t group);
  Status launch_int8(size_t group);
  Status first_bad_value();
  Status fetch_results();
  Status fill_group(size_t group);

  PublishDevice& device_;
  EscapeLists lists_;
  ChunkMemory memory_;  // destroyed first: waits for all kernels
  std::vector<GroupPlace> places_;
  SourceTables tables_;
  uint64_t rows_ = 0, layers_ = 0, picture_bytes_ = 0, low_bytes_ = 0, largest_group_ = 0;
  ChunkMemory::Place sample_of_, natural_;  // uploaded
  ChunkMemory::Place pictures_, low_bits_, keys_, steps_, offsets_, sinks_, bad_, counts_, sums_;
  ChunkMemory::Place elements_, values_, samples_, row_places_, statistics_, errors_;  // scratch
};

class CalibratedPublish final : public CalibratedEncoder {
 public:
  CalibratedPublish(PublishDevice& device, const KvSource& source, TokenRange range,
                    const EncodeOptions& options, format::Header header)
      : CalibratedEncoder(source, range, options, std::move(header)),
        device_(device),
        lists_(device, plans_.size()),
        memory_(device, device.next_stream()) {}

  // Nothing: that the pictures decode to what their checksums say is all that the host can tell.
  Status compare(const DecodedChunk&) const override { return ok_status(); }

 private:
  Status analyse(double step) override;
  Status quantise_groups() override;
  Status measure() override;

  void plan_memory();
  uint32_t channels(size_t group) const {
    return static_cast<uint32_t>(profile_.groups()[group].mean.size());
  }
  GroupSource source_of(size_t group) const {
    return group_source(source_, range_, header_, plans_[group], memory_, tables_);
  }
  Status analyse_all();
  Status launch_analysis(size_t group);
  Status launch_quantise(size_t group);
  Status launch_lowering(size_t group);
  size_t rate_models(size_t group) const;
  Status launch_measure(size_t group);
  Status launch_sums(size_t group, const float* values, uint64_t at);
  Status first_bad_value();
  Status take_codes(size_t group);

  PublishDevice& device_;
  EscapeLists lists_;
  ChunkMemory memory_;  // destroyed first: waits for all kernels
  const ProfileOnDevice* on_device_ = nullptr;
  SourceTables tables_;
  std::vector<uint64_t> first_component_, first_model_;  // counted over all groups
  uint64_t panels_of_group_ = 0;
  ChunkMemory::Place sinks_, bad_, peaks_, magnitudes_, bits_, rows_;              // fetched
  ChunkMemory::Place counts_, codes_, totals_;                                     // fetched
  ChunkMemory::Place analysed_, values_, weighed_, restored_, errors_, row_sums_;  // scratch
};

}  // namespace kvcodec::publish
