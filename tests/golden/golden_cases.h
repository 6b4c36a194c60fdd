// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kvcodec/codec.h"
#include "kvcodec/profile.h"

namespace kvcodec {

// An object of tests/golden/good and what it was made from. The values are made of integers only,
// so that every machine makes the same.
struct GoldenCase {
  std::string name;  // of good/<name>.kvc, and of good/<name>.raw: the elements it restores
  KvShape shape;
  uint32_t tokens = 0;
  ChunkId id;
  EncodeOptions options;
  std::vector<std::byte> values;  // canonical order
  // Of profiles/, or identity; nullptr: none. options.profile points to it.
  std::shared_ptr<const Profile> profile = nullptr;
};

// All cases. smollm2_* read their values from <folder>/good/smollm2_exact.raw.
std::vector<GoldenCase> golden_cases(const std::string& folder);

// A file of tests/golden/bad: how readers must refuse it.
struct GoldenFault {
  std::string name;  // of bad/<name>.kvc
  ErrorCode code = ErrorCode::corrupt;
  std::string message;   // a part of the error's
  bool foreign = false;  // refused only because `expected` is asked for
  ChunkId expected;
  std::string profile;  // that readers get; empty: none
  std::vector<std::byte> object;
};
// The faults, made from the good objects of the folder.
std::vector<GoldenFault> golden_faults(const std::string& folder);
std::vector<GoldenFault> calibrated_faults(const std::string& folder);  // those of version 2

std::vector<std::byte> read_golden(const std::string& path);  // ends the program where it cannot
Result<std::vector<std::byte>> encode_golden(const GoldenCase& golden);
// Elements that an object restores, canonical order.
Result<std::vector<std::byte>> decode_golden(const std::vector<std::byte>& object,
                                             const Profile* profile = nullptr);
// profiles/<name>.safetensors; ends the program where it cannot be read.
Profile read_golden_profile(const std::string& folder, const std::string& name);

}  // namespace kvcodec
