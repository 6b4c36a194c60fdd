// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "divergence.h"
#include "kvcodec/key.h"
#include "tensor_file.h"

namespace kvcodec::tools {

// Names what an evaluation computed: everything it depends on, hashed.
class EvalKey {
 public:
  EvalKey(const std::vector<std::string>& words,
          const std::vector<std::span<const int32_t>>& tokens);
  std::string hex() const { return to_hex(digest_); }

 private:
  Digest digest_;
};

// A folder that keeps prefixes and scores, so that an evaluation that is run again, or was
// stopped, computes what is new only. What cannot be read counts as absent and is written again.
class EvalCache {
 public:
  explicit EvalCache(std::string folder) : folder_(std::move(folder)) {}  // empty: keeps nothing
  std::optional<KvFile> find_kv(const EvalKey& key, const KvShape& shape,
                                std::span<const int32_t> tokens) const;
  Status keep_kv(const EvalKey& key, const KvFile& kv) const;
  std::optional<Divergence> find_score(const EvalKey& key) const;
  Status keep_score(const EvalKey& key, const Divergence& score) const;

 private:
  std::string path(const char* kind, const EvalKey& key, const char* extension) const;
  std::string folder_;
};

}  // namespace kvcodec::tools
