// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "kvcodec/profile.h"

namespace kvcodec::profile {

inline constexpr int kProfileVersion = 1;
inline constexpr uint64_t kMaxDim = 1u << 16;            // of layers, heads, dims: docs/format.md
inline constexpr uint64_t kMaxRows = uint64_t{1} << 24;  // of a kind, over all layers

// Between the fields of a profile, its groups apart, and the metadata of its file.
std::map<std::string, std::string> write_metadata(const ProfileFields& fields);
Result<ProfileFields> read_metadata(const std::map<std::string, std::string>& metadata);

}  // namespace kvcodec::profile
