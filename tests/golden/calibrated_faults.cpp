// SPDX-License-Identifier: Apache-2.0
// Objects of format version 2 with one fault each, as golden_faults.cpp has those of version 1.
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/hash.h"
#include "format/header_fields.h"
#include "golden/golden_cases.h"

namespace kvcodec {

namespace {

using Bytes = std::vector<std::byte>;

// Offsets in a group's entry: docs/format.md.
constexpr size_t kKind = 0, kZero = 1, kFirstLayer = 4, kLayers = 8, kComponents = 12;
constexpr size_t kLiveRows = 16, kStep = 20, kDelta = 24, kNoise = 32, kRelativeError = 36;

class CalibratedFaults {
 public:
  explicit CalibratedFaults(const std::string& folder)
      : object_(read_golden(folder + "/good/balanced_smollm2.kvc")),
        header_(*format::read_header(object_, {})),
        groups_(format::kFixedBytes + 8 * header_.rope.phase_steps.size()) {}

  std::vector<GoldenFault> make() {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    add("v2_tier_of_version_1", "tier at offset 10", format::kTierAt, uint16_t{2});
    add("v2_basis_unknown", "basis at offset 147", format::kBasisAt, uint8_t{2});
    add("v2_group_count_zero", "group_count at offset 172", format::kGroupCountAt, uint32_t{0});
    add("v2_group_count_huge", "group_count at offset 172", format::kGroupCountAt, UINT32_MAX);
    add("v2_group_count_other", "header_bytes at offset 12", format::kGroupCountAt, uint32_t{5});
    add_changed("v2_profile_none", "profile at offset 88",
                [](Bytes& object) { std::memset(&object[format::kProfileAt], 0, 32); });
    add_group("v2_group_kind_unknown", 3, "groups[3].kind", kKind, uint8_t{2});
    add_group("v2_group_kind_order", 3, "groups[3].kind", kKind, uint8_t{0});
    add_group("v2_group_reserved", 0, "groups[0].reserved", kZero, uint8_t{1});
    add_group("v2_group_gap", 1, "groups[1].first_layer", kFirstLayer, uint32_t{1});
    add_group("v2_group_no_layers", 0, "groups[0].layers", kLayers, uint32_t{0});
    add_group("v2_group_many_layers", 0, "groups[0].layers", kLayers, uint32_t{4});
    add_group("v2_group_layers_missing", 3, "groups[3].layers", kLayers, uint32_t{2});
    add_group("v2_no_components", 0, "groups[0].components", kComponents, uint32_t{0});
    add_group("v2_many_components", 0, "groups[0].components", kComponents, uint32_t{33});
    // A header that is right in itself, and not of its profile.
    add_group("v2_not_of_its_profile", 1, "not of its profile: group", kComponents,
              header_.groups[1].components + 1);
    add_group("v2_many_live_rows", 0, "groups[0].live_rows", kLiveRows,
              header_.groups[0].components + 1);
    add_group("v2_fewer_live_rows", 0, "pictures[0].rows", kLiveRows,
              header_.groups[0].live_rows - 1);
    add_group("v2_step_nan", 0, "groups[0].step", kStep, nan);
    add_group("v2_step_zero", 2, "groups[2].step", kStep, 0.0f);
    add_group("v2_delta_nan", 0, "groups[0].delta", kDelta, nan);
    add_group("v2_delta_large", 1, "groups[1].delta", kDelta + 4, 1.5f);
    add_group("v2_noise_negative", 0, "groups[0].noise", kNoise, -1.0f);
    add_group("v2_error_infinite", 0, "groups[0].relative_error", kRelativeError, infinity);
    return std::move(faults_);
  }

 private:
  template <typename Change>
  void add_changed(const char* name, const std::string& message, const Change& change) {
    GoldenFault fault;
    fault.name = name;
    fault.message = message;
    fault.profile = "smollm2_cut";
    fault.object = object_;
    change(fault.object);
    const size_t at = *format::header_bytes(std::span(object_).first(format::kPrefixBytes)) -
                      format::kChecksumBytes;
    const uint64_t checksum = checksum64(std::span(fault.object).first(at));
    std::memcpy(&fault.object[at], &checksum, sizeof checksum);
    faults_.push_back(std::move(fault));
  }
  template <typename T>
  void add(const char* name, const std::string& message, size_t offset, T value) {
    add_changed(name, message,
                [&](Bytes& object) { std::memcpy(object.data() + offset, &value, sizeof value); });
  }
  template <typename T>
  void add_group(const char* name, size_t group, const std::string& message, size_t field,
                 T value) {
    add(name, message, groups_ + group * format::kGroupBytes + field, value);
  }

  const Bytes object_;
  const format::Header header_;
  const size_t groups_;  // offset of the groups
  std::vector<GoldenFault> faults_;
};

}  // namespace

std::vector<GoldenFault> calibrated_faults(const std::string& folder) {
  return CalibratedFaults(folder).make();
}

}  // namespace kvcodec
