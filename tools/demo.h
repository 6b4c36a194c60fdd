// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kvcodec/result.h"

namespace kvcodec::tools {

// The demo is one program in several processes: the parent starts a publisher, then one process
// for every answer, each with a JSON result on stdout. These are the roles of the children.
struct DemoArgs {
  std::string model, text, store, question;
  uint32_t text_tokens = 0;  // how much of the text is the shared prefix
  int threads = 0;

  std::string method;     // answer: prefill, raw, exact, int8
  double mbps = 0;        // answer: of the link in front of the store; 0: no limit
  std::string reference;  // answer: file of reference logits; prefill writes it, others read it
};

inline constexpr uint32_t kContinuationTokens = 32;

// Prefills the text and stores it raw, exact and int8.
Result<nlohmann::json> demo_publish(const DemoArgs& args);

// Answers the question after the text by one method. TTFT is counted from the tokenised request
// to the first token of the answer, the model being loaded.
Result<nlohmann::json> demo_answer(const DemoArgs& args);

}  // namespace kvcodec::tools
