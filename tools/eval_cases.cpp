// SPDX-License-Identifier: Apache-2.0
#include "eval_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "output.h"

namespace kvcodec::tools {

namespace {

namespace fs = std::filesystem;

// A needle: a fact that nothing else in the text says, asked for at its end (after Kamradt, "Needle
// in a Haystack"). Several places and codes, so that no two cases of a text ask for the same.
struct Needle {
  std::string fact, question, answer;
};

Needle make_needle(size_t index) {
  static constexpr const char* kPlaces[] = {"lighthouse", "observatory", "boathouse", "windmill"};
  const char* place = kPlaces[index % std::size(kPlaces)];
  // Codes far apart and without a pattern: multiples of a prime, five digits.
  const size_t code = 10000 + (index + 1) * 28657 % 90000;
  const std::string key = fmt::format("The secret code of the {} is", place);
  return {fmt::format("\n\n{} {}.\n\n", key, code),
          fmt::format("\n\nQuestion: What is the secret code of the {}?\nAnswer: {}", place, key),
          fmt::format(" {}", code)};
}

Error too_short(const std::string& path, size_t found, size_t needed) {
  return {ErrorCode::invalid_argument,
          fmt::format("{}: {} tokens; prefix and continuation need {}", path, found, needed)};
}

EvalPrefix plain_prefix(const EvalArgs& args, const std::string& name, uint32_t longest,
                        std::span<const int32_t> tokens) {
  EvalPrefix prefix;
  prefix.text = name;
  prefix.tokens.assign(tokens.begin(), tokens.begin() + longest);
  for (uint32_t length : args.lengths) {
    EvalCase one;
    one.name = fmt::format("{}-{}", name, length);
    one.tokens = length;
    // One more than is computed: the target of the last prediction.
    const auto next = tokens.subspan(length, args.continuation + 1);
    one.continuation.assign(next.begin(), next.end());
    prefix.cases.push_back(std::move(one));
  }
  return prefix;
}

Result<EvalPrefix> needle_prefix(const std::string& name, uint32_t length, double depth,
                                 size_t index, std::span<const int32_t> tokens,
                                 const Tokenizer& tokenize) {
  const Needle needle = make_needle(index);
  KVCODEC_TRY(const std::vector<int32_t> fact, tokenize(needle.fact, false));
  KVCODEC_TRY(std::vector<int32_t> question, tokenize(needle.question, false));
  KVCODEC_TRY(const std::vector<int32_t> answer, tokenize(needle.answer, false));
  if (fact.size() >= length) return too_short(name, length, fact.size() + 1);
  const size_t hay = length - fact.size();
  // Behind the token that starts a sequence at least.
  const size_t at =
      std::max<size_t>(1, static_cast<size_t>(std::llround(depth * static_cast<double>(hay))));
  EvalPrefix prefix;
  prefix.text = name;
  prefix.tokens.assign(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(hay));
  prefix.tokens.insert(prefix.tokens.begin() + static_cast<ptrdiff_t>(at), fact.begin(),
                       fact.end());
  EvalCase one;
  one.name = fmt::format("{}-{}-needle{:.0f}", name, length, 100 * depth);
  one.tokens = length;
  one.depth = depth;
  one.first_scored = static_cast<uint32_t>(question.size() - 1);
  one.continuation = std::move(question);
  one.continuation.insert(one.continuation.end(), answer.begin(), answer.end());
  prefix.cases.push_back(std::move(one));
  return prefix;
}

}  // namespace

Result<std::vector<std::string>> list_texts(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code failed;
    if (!fs::is_directory(path, failed)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (fs::directory_iterator entry(path, failed), end; !failed && entry != end;
         entry.increment(failed)) {
      if (entry->is_regular_file()) inside.push_back(entry->path().string());
    }
    if (failed) return Error{ErrorCode::io, fmt::format("{}: {}", path, failed.message())};
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  std::set<std::string> names;
  for (const std::string& file : files) {
    if (!fs::is_regular_file(file)) {
      return Error{ErrorCode::not_found, fmt::format("{}: no such file", file)};
    }
    if (!names.insert(fs::path(file).stem().string()).second) {
      return Error{ErrorCode::invalid_argument, fmt::format("{}: another text has the name {}",
                                                            file, fs::path(file).stem().string())};
    }
  }
  if (files.empty()) return Error{ErrorCode::not_found, "no texts"};
  return files;
}

Result<std::vector<EvalPrefix>> make_prefixes(const EvalArgs& args, const Tokenizer& tokenize) {
  KVCODEC_TRY(const std::vector<std::string> files, list_texts(args.texts));
  const uint32_t longest = *std::max_element(args.lengths.begin(), args.lengths.end());
  const size_t needed = size_t{longest} + args.continuation + 1;
  std::vector<EvalPrefix> plain, planted;
  for (const std::string& file : files) {
    KVCODEC_TRY(const std::vector<std::byte> bytes, read_file(file));
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    KVCODEC_TRY(const std::vector<int32_t> tokens, tokenize(text, true));
    if (tokens.size() < needed) return too_short(file, tokens.size(), needed);
    const std::string name = fs::path(file).stem().string();
    plain.push_back(plain_prefix(args, name, longest, tokens));
    for (double depth : args.needles) {
      KVCODEC_TRY(EvalPrefix prefix,
                  needle_prefix(name, longest, depth, planted.size(), tokens, tokenize));
      planted.push_back(std::move(prefix));
    }
  }
  std::move(planted.begin(), planted.end(), std::back_inserter(plain));
  return plain;
}

}  // namespace kvcodec::tools
