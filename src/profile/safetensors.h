// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kvcodec/result.h"

namespace kvcodec::profile {

// The safetensors file format: u64 length of a JSON header, the header, then the tensors' bytes
// back to back (github.com/huggingface/safetensors, README "Format").
struct Tensor {
  std::string type;  // "F32", "F16", "I32", ...
  std::vector<uint64_t> shape;
  std::span<const std::byte> bytes;
  uint64_t offset = 0;  // in the file
};

struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, Tensor> tensors;
};

// Borrows `file`. corrupt where lengths, offsets or shapes do not fit each other, tensors overlap
// or leave gaps, or the file ends before or after the last.
Result<TensorFile> parse_safetensors(std::span<const std::byte> file);

// The bytes of a file of these tensors, sorted by name. Each must have the bytes that its type and
// shape ask for.
std::vector<std::byte> write_safetensors(const TensorFile& file);

}  // namespace kvcodec::profile
