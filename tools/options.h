// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "kvcodec/codec.h"
#include "kvcodec/profile.h"
#include "kvcodec/store.h"

namespace kvcodec::tools {

// Options that several commands share, each declared once.
struct ProfileFlag {
  std::string path;
  void add_to(CLI::App& command);
  // Nothing where no profile was named. "identity" needs the model's shape.
  Result<std::shared_ptr<const Profile>> load(const KvShape* shape = nullptr,
                                              const Rope& rope = {}) const;
};

struct EncodeFlags {
  std::string tier = "exact";
  std::string rope = "none";
  uint32_t sink_tokens = EncodeOptions{}.sink_tokens;
  uint32_t picture_height = EncodeOptions{}.max_picture_height;
  int threads = 0;
  bool no_verify = false;
  ProfileFlag profile;
  double noise_factor = EncodeOptions{}.noise_factor;
  void add_to(CLI::App& command);
  // `key_dim`: the rotary dims where --rope names none. `loaded`: of the profile flag, borrowed.
  Result<EncodeOptions> resolve(uint32_t key_dim, const Profile* loaded) const;
};

struct StoreFlags {
  std::string uri;
  std::string max_bytes = "0";
  void add_to(CLI::App& command);
  void add_bound_to(CLI::App& command);
  Result<std::unique_ptr<Store>> open() const;
};

// A rendition's name from what a user writes: a tier, which `profile` completes, or the whole name.
Result<std::string> complete_rendition(const std::string& text, const Profile* profile);
// "512", "64K", "10M", "2G", "1T" (powers of 1024).
Result<uint64_t> parse_bytes(const std::string& text);
// "none", "interleaved:BASE[:DIMS]" or "neox:BASE[:DIMS]".
Result<Rope> parse_rope(const std::string& text, uint32_t key_dim);

}  // namespace kvcodec::tools
