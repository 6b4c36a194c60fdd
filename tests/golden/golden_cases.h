// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kvcodec/codec.h"

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
  std::vector<std::byte> object;
};
// The faults, made from the good objects of the folder.
std::vector<GoldenFault> golden_faults(const std::string& folder);

std::vector<std::byte> read_golden(const std::string& path);  // ends the program where it cannot
Result<std::vector<std::byte>> encode_golden(const GoldenCase& golden);
// Elements that an object restores, canonical order.
Result<std::vector<std::byte>> decode_golden(const std::vector<std::byte>& object);

}  // namespace kvcodec
