// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvcodec/fetch.h"

namespace kvcodec::tools {

// What `kvcodec` does with a language model. model_llama.cpp does it; model_none.cpp, in builds
// without an engine, answers `unsupported`.
struct ModelArgs {
  std::string model;  // GGUF file
  std::string text;   // file with the shared prefix
  std::string salt;
  uint32_t chunk_tokens = kDefaultChunkTokens;
  int threads = 0;
  bool replace = false;  // publish: write chunks that are present too
};

struct ModelPublish {
  PublishReport report;
  Digest ns;
  double prefill_seconds = 0;
};
// Prefills the text and publishes its KV. The model's own rotation replaces options.rope.
Result<ModelPublish> publish_text(Store& store, const ModelArgs& args, EncodeOptions options);

struct AnswerArgs {
  std::string rendition = "exact";  // as in stores
  const Profile* profile = nullptr;
  Tier lowest_tier = Tier::small;
  std::string prompt;  // appended to the text
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
// Restores what the store has of text + prompt, computes the rest and answers greedily. A faulty
// chunk is recomputed and mended in the store.
Result<Answer> fetch_and_answer(Store& store, const ModelArgs& args, const AnswerArgs& answer);

}  // namespace kvcodec::tools
