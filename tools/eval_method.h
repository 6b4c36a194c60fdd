// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvcodec/codec.h"
#include "kvcodec/profile.h"

namespace kvcodec::tools {

// One way to keep the KV of a prefix.
struct EvalMethod {
  enum class Kind {
    raw,       // as it is
    tier,      // chunks of that tier, encoded and decoded
    external,  // a folder of files that another program wrote, see read_external()
  };
  std::string name;  // for people and JSON
  Kind kind = Kind::raw;
  Tier tier = Tier::exact;
  std::string path;                        // external: the folder
  std::shared_ptr<const Profile> profile;  // calibrated tiers
};

// "raw", a tier's name, "TIER=PROFILE" for a calibrated tier of that profile (a file, by whose name
// the method goes too), or "external:NAME=FOLDER". `profile` serves calibrated tiers that name
// none.
Result<EvalMethod> parse_eval_method(const std::string& text,
                                     const std::shared_ptr<const Profile>& profile);

// What a method keeps is asked for by the name of the case: "<text>-<tokens>" and the like.
struct EvalRequest {
  std::string case_name;
  KvSource source;                  // the exact KV; its first `tokens` are the prefix
  std::span<const int32_t> tokens;  // token ids of the prefix
  Rope rope;
  Digest weights;
  uint32_t chunk_tokens = 256;
  int threads = 0;
  double noise_factor = EncodeOptions{}.noise_factor;
  uint32_t sink_tokens = EncodeOptions{}.sink_tokens;
};

struct EvalSize {
  uint64_t bits = 0;     // whole objects, headers and all
  uint32_t objects = 0;  // 0: not chunks of ours
  uint32_t finer = 0;    // of them, coded at a finer tier than the method's
};

// Fills the first tokens of `target` with what the method restores of the request, and returns
// what it takes. Requires equal shapes.
Result<EvalSize> apply_method(const EvalMethod& method, const EvalRequest& request,
                              const KvTarget& target);

// The exact KV of a case as <folder>/<case>.safetensors, for other programs: "key" and "value" of
// [layers, tokens, kv_heads, head_dim], keys rotated as the engine has them, "tokens", and as
// metadata "case", "weights" (SHA-256, hex) and "rope" (JSON: style, rotary_dims, phase_steps as
// hexadecimal u64). What such a program writes for apply_method() is the same file with other
// elements and the metadata "bits": all that its decoder needs, in decimal.
Status dump_case(const std::string& folder, const EvalRequest& request);

// Copies the first `tokens` of every layer; requires equal shapes.
void copy_tokens(const KvSource& from, const KvTarget& to, uint32_t tokens);

}  // namespace kvcodec::tools
