// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvcodec/fetch.h"

namespace kvcodec::tools {

class AdaptiveRun;

// What `kvcodec` does with a language model. model_llama.cpp does it; model_none.cpp, in builds
// without an engine, answers `unsupported`.
struct ModelArgs {
  std::string model;  // GGUF file
  std::string text;   // file with the shared prefix
  std::string salt;
  uint32_t chunk_tokens = kDefaultChunkTokens;
  int threads = 0;
  bool replace = false;                 // publish: write chunks that are present too
  std::vector<std::string> renditions;  // publish: whole names; empty: that of the options alone
};

struct ModelPublish {
  std::vector<PublishReport> reports;  // one a rendition
  Digest ns;
  std::vector<int32_t> tokens;
  double prefill_seconds = 0;
};
// Prefills the text and publishes its KV. The model's own rotation replaces options.rope.
Result<ModelPublish> publish_text(Store& store, const ModelArgs& args, EncodeOptions options);

struct AnswerArgs {
  std::string rendition = "exact";  // as in stores
  const Profile* profile = nullptr;
  Tier lowest_tier = Tier::small;
  AdaptiveRun* adaptive = nullptr;  // instead of one rendition; borrowed
  std::string prompt;               // appended to the text
  uint32_t max_tokens = 64;
};
struct Answer {
  FetchReport fetch;
  uint32_t prompt_tokens = 0;    // text and prompt
  uint32_t computed_tokens = 0;  // of them, not restored
  double ttft_seconds = 0;       // model loaded and text tokenised -> first token known
  std::vector<int32_t> tokens;   // greedy
  std::string text;
};
// Publishes in the renditions that are named, or in that of `options` alone.
Result<std::vector<PublishReport>> publish_all(Store& store, const Digest& ns,
                                               std::span<const int32_t> tokens,
                                               const KvSource& source,
                                               const std::vector<std::string>& renditions,
                                               const PublishOptions& options);
// Restores what the store has of text + prompt, computes the rest and answers greedily. A faulty
// chunk is recomputed and mended in the store.
Result<Answer> fetch_and_answer(Store& store, const ModelArgs& args, const AnswerArgs& answer);

}  // namespace kvcodec::tools
