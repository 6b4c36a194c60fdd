// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "codec/chunk_plan.h"

namespace kvcodec {

// Tier exact, one group of rows. `rows` is the group's matrix of elements (layout/row_gather.h).
// Concurrent calls for different groups of one chunk are safe.

// Chooses header.row_keys of the group and fills the contents of its pictures: samples, padded to
// the coded size, and stored low bits.
void split_group(const GroupPlan& plan, const std::byte* rows, format::Header& header,
                 std::span<PictureContent> contents);

// The inverse, from samples and payloads.
void merge_group(const GroupPlan& plan, const format::Header& header,
                 std::span<const PictureContent> contents, std::byte* rows);

}  // namespace kvcodec
