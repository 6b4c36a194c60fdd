// SPDX-License-Identifier: Apache-2.0
#include "restore/chunk_image.h"

// For the secret that XXH3 begins with.
#define XXH_INLINE_ALL  // NOLINT(readability-identifier-naming)
#include <xxhash.h>

#include <algorithm>
#include <tuple>

#include "transform/exact_split.h"
#include "transform/symbol_order.h"

namespace kvcodec::restore {
namespace {

constexpr uint64_t kAlign = 256;
uint64_t aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

class ImageBuilder {
 public:
  ImageBuilder(const format::Header& header, std::span<const std::byte> object,
               std::span<const PictureContent> decoded, std::span<std::byte> upload)
      : header_(header), object_(object), decoded_(decoded), upload_(upload) {}

  ChunkImage build(const KvGeometry& target) {
    image_.picture_samples.resize(header_.pictures.size());
    image_.secret = add(std::span(XXH3_kSecret));
    image_.offset_of = add(std::span(transform::kSymbolOrder.offset_of));
    if (header_.tier != Tier::exact && header_.rope.style != Rope::Style::none) {
      image_.phase_steps = add(std::span(header_.rope.phase_steps));
      image_.pairs = header_.rope.rotary_dims / 2;
    }
    image_.has_block_table = !target.block_table.empty();
    image_.block_table = add(std::span(target.block_table));
    sinks_ = add(std::span(header_.sinks));
    for (GroupPlan& plan : plan_groups(header_)) add_group(std::move(plan));
    plan_memory();
    return std::move(image_);
  }

 private:
  // Places bytes behind what is there.
  uint64_t append(std::span<const std::byte> bytes) {
    const uint64_t at = image_.upload_bytes;
    if (!bytes.empty()) std::memcpy(upload_.data() + at, bytes.data(), bytes.size());
    image_.upload_bytes += bytes.size();
    return at;
  }
  uint64_t add_bytes(std::span<const std::byte> bytes) {
    image_.upload_bytes = aligned(image_.upload_bytes);
    return append(bytes);
  }
  template <typename T, size_t n>
  uint64_t add(std::span<const T, n> items) {
    return add_bytes(std::as_bytes(items));
  }
  template <typename T, size_t n>
  uint64_t add(std::span<T, n> items) {
    return add_bytes(std::as_bytes(items));
  }

  void add_group(GroupPlan plan) {
    GroupImage group;
    const auto kind = static_cast<size_t>(plan.kind);
    if (header_.has_row_keys()) add_rows(plan, group);
    if (header_.tier == Tier::exact) {
      for (size_t i = 0; i < plan.low_bits.size(); ++i) {
        const format::Picture& low = header_.pictures[plan.low_bits[i]];
        // Pictures of one group are one array: only the first is aligned.
        const auto payload = object_.subspan(low.offset, low.bytes);
        const uint64_t at = i == 0 ? add_bytes(payload) : append(payload);
        if (i == 0) group.low_bits = at;
      }
    } else {
      add_escapes(plan, group);
      group.sinks = sinks_ + sink_offset(header_, plan.kind, plan.layers.first, 0);
      if (header_.has_layer_steps()) {
        group.steps =
            add(std::span(header_.steps[kind]).subspan(plan.layers.first, plan.layers.count));
        group.offsets =
            add(std::span(header_.row_offsets[kind]).subspan(plan.rows.first_row, plan.rows.rows));
      }
    }
    group.plan = std::move(plan);
    image_.groups.push_back(std::move(group));
  }

  void add_rows(const GroupPlan& plan, GroupImage& group) {
    std::vector<uint32_t> rows;
    for (const RowPlace& place : place_rows(header_, plan))
      rows.push_back(place.picture * header_.max_picture_height + place.row);
    group.layout_row = add(std::span(rows));
    if (header_.tier != Tier::exact) return;
    const auto kind = static_cast<size_t>(plan.kind);
    const auto how =
        transform::ExactSplit::of(header_.shape.dtype, header_.symbol_mantissa_bits[kind]);
    std::vector<uint8_t> centres;
    for (uint8_t key :
         std::span(header_.row_keys[kind]).subspan(plan.rows.first_row, plan.rows.rows))
      centres.push_back(static_cast<uint8_t>(key >> how.key_shift));
    group.centres = add(std::span(centres));
  }

  void add_escapes(const GroupPlan& plan, GroupImage& group) {
    const auto before = [](const format::Escape& e, const auto& place) {
      return std::tie(e.kind, e.row) < place;
    };
    std::vector<EscapeEntry> entries;
    auto at = std::lower_bound(header_.escapes.begin(), header_.escapes.end(),
                               std::tuple(plan.kind, plan.rows.first_row), before);
    for (; at != header_.escapes.end() && at->kind == plan.kind &&
           at->row - plan.rows.first_row < plan.rows.rows;
         ++at)
      entries.push_back({at->row - plan.rows.first_row, at->token, at->code});
    group.escapes = add(std::span(entries));
    group.escape_count = static_cast<uint32_t>(entries.size());
  }

  // Staging, then what only kernels touch. Samples that the host has are part of the image, so
  // that they come with it.
  void plan_memory() {
    uint64_t largest_values = 0, largest_components = 0;
    std::vector<uint64_t> offsets, bytes, expected;
    for (GroupImage& group : image_.groups) {
      group.check_offsets = offsets.size() * 8;  // until the arrays have their places
      place_samples(group, offsets, bytes, expected);
      const uint64_t rows =
          uint64_t{group.plan.layers.count} * header_.shape.channels(group.plan.kind);
      largest_values = std::max(largest_values, rows * header_.tokens * 4);
      largest_components =
          std::max(largest_components, uint64_t{group.plan.rows.rows} * header_.tokens * 4);
    }
    image_.checks = static_cast<uint32_t>(offsets.size());
    const uint64_t at_offsets = add(std::span(offsets)), at_bytes = add(std::span(bytes)),
                   at_expected = add(std::span(expected));
    uint64_t at = aligned(image_.upload_bytes);
    const auto reserve = [&at](uint64_t size) { return std::exchange(at, aligned(at + size)); };
    const uint64_t staging = reserve(staging_bytes_);
    const uint64_t turns = uint64_t{image_.pairs} * header_.tokens * 4;
    image_.cosines = reserve(turns);
    image_.sines = reserve(turns);
    image_.results = reserve(8 + uint64_t{image_.checks} * 8);
    image_.total_bytes = at;
    if (header_.tier != Tier::exact) image_.scratch_bytes = aligned(largest_values);
    image_.components = image_.scratch_bytes;
    if (!header_.has_row_keys()) image_.scratch_bytes += aligned(largest_components);
    // Staging offsets become offsets in the chunk's memory.
    for (GroupImage& group : image_.groups) {
      const uint64_t first = group.check_offsets;
      group.check_offsets = at_offsets + first;
      group.check_bytes = at_bytes + first;
      group.check_expected = at_expected + first;
      group.check_found = image_.results + 8 + first;
      if (!in_image_) group.samples += staging;
    }
    if (in_image_) return;
    for (uint64_t& samples : image_.picture_samples) samples += staging;
    for (uint64_t& offset : offsets) offset += staging;
    if (!offsets.empty())
      std::memcpy(upload_.data() + at_offsets, offsets.data(), offsets.size() * sizeof(uint64_t));
  }

  void place_samples(GroupImage& group, std::vector<uint64_t>& offsets,
                     std::vector<uint64_t>& bytes, std::vector<uint64_t>& expected) {
    in_image_ = !decoded_.empty();
    if (in_image_) return place_decoded(group);
    staging_bytes_ = aligned(staging_bytes_);
    group.samples = staging_bytes_;
    for (size_t index : group.plan.symbols) {
      const format::Picture& picture = header_.pictures[index];
      const uint64_t size = uint64_t{picture.rows} * header_.tokens;
      image_.picture_samples[index] = staging_bytes_;
      if (through_nvdec(picture)) {
        offsets.push_back(staging_bytes_);
        bytes.push_back(size);
        expected.push_back(picture.content_checksum);
        ++group.checks;
      }
      staging_bytes_ += size;
    }
  }

  void place_decoded(GroupImage& group) {
    image_.upload_bytes = group.samples = aligned(image_.upload_bytes);
    for (size_t index : group.plan.symbols) {
      const PictureContent& content = decoded_[index];
      for (uint32_t row = 0; row < header_.pictures[index].rows; ++row) {
        append(std::as_bytes(
            std::span(content.samples).subspan(row * content.stride, header_.tokens)));
      }
    }
  }

  const format::Header& header_;
  const std::span<const std::byte> object_;
  const std::span<const PictureContent> decoded_;
  const std::span<std::byte> upload_;
  ChunkImage image_;
  uint64_t sinks_ = 0, staging_bytes_ = 0;
  bool in_image_ = false;
};

}  // namespace

uint64_t max_upload_bytes(const format::Header& header, uint64_t object_bytes,
                          const KvGeometry& target) {
  const uint64_t rows = uint64_t{header.rows(KvKind::key)} + header.rows(KvKind::value);
  uint64_t decoded = 0;  // where the host decodes, which it does for small pictures
  for (const format::Picture& picture : header.pictures)
    decoded += uint64_t{picture.rows} * header.tokens;
  constexpr uint64_t kArrays = 16;  // a group, and of the chunk
  const uint64_t tables = rows * (sizeof(uint32_t) + sizeof(int16_t) + 1 + sizeof(float)) +
                          header.pictures.size() * 3 * sizeof(uint64_t) +
                          header.rope.phase_steps.size() * sizeof(uint64_t) +
                          target.block_table.size() * sizeof(uint32_t) + 1024;
  return object_bytes + header.sinks.size() + header.escapes.size() * sizeof(EscapeEntry) + tables +
         decoded + (2 * uint64_t{header.shape.layers} + 1) * kArrays * kAlign;
}

ChunkImage build_image(const format::Header& header, std::span<const std::byte> object,
                       std::span<const PictureContent> decoded, const KvGeometry& target,
                       std::span<std::byte> upload) {
  return ImageBuilder(header, object, decoded, upload).build(target);
}

}  // namespace kvcodec::restore
