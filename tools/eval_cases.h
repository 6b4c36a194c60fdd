// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "eval.h"

// Which tokens are computed and which are predicted: texts cut into prefixes and continuations.
namespace kvcodec::tools {

struct EvalCase {
  std::string name;  // "<text>-<tokens>" or "<text>-<tokens>-needle<percent>"
  uint32_t tokens = 0;
  std::optional<double> depth;
  std::vector<int32_t> continuation;  // all but the last are computed, all but the first predicted
  uint32_t first_scored = 0;          // predictions before it are not counted
};

// One run of tokens that is computed once; its cases begin at its beginning.
struct EvalPrefix {
  std::string text;  // name of the file without its folder and extension
  std::vector<int32_t> tokens;
  std::vector<EvalCase> cases;
};

using Tokenizer = std::function<Result<std::vector<int32_t>>(const std::string& text, bool start)>;

// The files of `paths`, those of folders in order of name. not_found, or invalid_argument where
// two have one name.
Result<std::vector<std::string>> list_texts(const std::vector<std::string>& paths);

// Every prefix of every text, plain ones first. invalid_argument names the text that is too short
// and how many tokens it needs.
Result<std::vector<EvalPrefix>> make_prefixes(const EvalArgs& args, const Tokenizer& tokenize);

}  // namespace kvcodec::tools
