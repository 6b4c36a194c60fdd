// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "divergence.h"
#include "eval_method.h"

namespace kvcodec::tools {

// `kvcodec eval`: what methods cost and what they do to a model's predictions. The prefix of each
// text is computed once; a method's version of it is put into the engine and only the
// continuation is computed. eval_llama.cpp does it; model_none.cpp answers `unsupported`.
struct EvalArgs {
  std::string model;               // GGUF file
  std::vector<std::string> texts;  // files, or folders of them
  std::vector<uint32_t> lengths;   // of the prefix, in tokens
  uint32_t continuation = 128;     // tokens that are predicted after it
  std::vector<double> needles;     // depths in [0, 1] at which a fact is planted
  std::vector<EvalMethod> methods;
  std::string dump;   // folder: write the exact KV of every case
  std::string cache;  // folder: keep prefixes and scores
  uint32_t chunk_tokens = 256;
  int threads = 0;
  double noise_factor = EncodeOptions{}.noise_factor;
  uint32_t sink_tokens = EncodeOptions{}.sink_tokens;
};

struct EvalRow {
  std::string method, text, case_name;
  uint32_t tokens = 0;          // of the prefix
  uint32_t scored = 0;          // tokens that were predicted
  std::optional<double> depth;  // of the needle; absent for a plain continuation
  EvalSize size;
  uint64_t values = 0;  // elements of the prefix
  Divergence score;
  double bits_per_value() const {
    return static_cast<double>(size.bits) / static_cast<double>(values);
  }
};

struct EvalReport {
  std::string model;
  KvShape shape;
  std::vector<EvalRow> rows;
  uint32_t prefixes_computed = 0, prefixes_cached = 0;
  uint32_t scores_computed = 0, scores_cached = 0;
};
Result<EvalReport> evaluate(const EvalArgs& args);

// All rows of one method and length.
struct EvalSummary {
  std::string method;
  uint32_t tokens = 0;
  uint32_t texts = 0;
  uint32_t objects = 0, finer = 0;  // chunks, and those at a finer tier than asked for
  double bits_per_value = 0;
  double kl = 0, kl_error = 0;  // mean over the texts, and its standard error (0 for one text)
  double top1 = 0;
  double perplexity = 0, exact_perplexity = 0;
  bool identical = true;  // every logit of every row
  uint32_t needles = 0, found = 0, exact_found = 0;
  double needle_log_prob = 0;  // mean change of the answers' log-probability
};
// By length, then in the order of the methods in the rows. Needles count in their own columns only.
std::vector<EvalSummary> summarise(const std::vector<EvalRow>& rows);

}  // namespace kvcodec::tools
