// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kvcodec/kv.h"

namespace kvcodec::tools {

// A KV cache as people keep it in files.
//   .safetensors: "key" and "value" of [layers, tokens, kv_heads, head_dim] (F16, BF16 or F32),
//                 or "kv" of [layers, 2, tokens, kv_heads, head_dim]; "tokens" I32 of [tokens]
//                 where the token ids are known. Metadata: text pairs, kept as they are.
//   .npy:         [layers, 2, tokens, kv_heads, head_dim], little-endian float16 or float32.
struct KvFile {
  KvGeometry geometry;            // over `memory`
  std::vector<std::byte> memory;  // the whole file, or what is to be written
  std::vector<int32_t> tokens;    // empty: unknown
  std::map<std::string, std::string> metadata;

  KvSource source() const { return {memory, &geometry}; }
};

// Format by extension. corrupt names the offset or field; unsupported what is not read.
Result<KvFile> read_kv_file(const std::string& path);
// Requires a contiguous geometry for .npy; .safetensors takes any. bf16 is unsupported in .npy.
Status write_kv_file(const std::string& path, const KvFile& kv);

}  // namespace kvcodec::tools
