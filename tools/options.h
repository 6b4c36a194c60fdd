// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "kvcodec/codec.h"
#include "kvcodec/store.h"

namespace kvcodec::tools {

// Options that several commands share, each declared once.
struct EncodeFlags {
  std::string tier = "exact";
  std::string rope = "none";
  uint32_t sink_tokens = EncodeOptions{}.sink_tokens;
  uint32_t picture_height = EncodeOptions{}.max_picture_height;
  int threads = 0;
  bool no_verify = false;
  void add_to(CLI::App& command);
  // `key_dim`: the rotary dims where --rope names none.
  Result<EncodeOptions> resolve(uint32_t key_dim) const;
};

struct StoreFlags {
  std::string uri;
  std::string max_bytes = "0";
  void add_to(CLI::App& command);
  void add_bound_to(CLI::App& command);
  Result<std::unique_ptr<Store>> open() const;
};

// "512", "64K", "10M", "2G", "1T" (powers of 1024).
Result<uint64_t> parse_bytes(const std::string& text);
// "none", "interleaved:BASE[:DIMS]" or "neox:BASE[:DIMS]".
Result<Rope> parse_rope(const std::string& text, uint32_t key_dim);

}  // namespace kvcodec::tools
