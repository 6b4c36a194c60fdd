// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "eval.h"

namespace kvcodec::tools {

namespace {

EvalSummary summarise_group(const std::vector<const EvalRow*>& rows) {
  EvalSummary out;
  out.method = rows.front()->method;
  out.tokens = rows.front()->tokens;
  double bits = 0, values = 0, log_prob = 0, exact_log_prob = 0, scored = 0, squares = 0;
  for (const EvalRow* row : rows) {
    const Divergence& score = row->score;
    out.identical &= score.identical;
    if (row->depth) {
      ++out.needles;
      out.found += score.top_is_target;
      out.exact_found += score.exact_top_is_target;
      out.needle_log_prob += score.log_prob - score.exact_log_prob;
      continue;
    }
    ++out.texts;
    out.objects += row->size.objects;
    out.finer += row->size.finer;
    bits += static_cast<double>(row->size.bits);
    values += static_cast<double>(row->values);
    out.kl += score.kl;
    squares += score.kl * score.kl;
    out.top1 += score.top1;
    log_prob += score.log_prob;
    exact_log_prob += score.exact_log_prob;
    scored += row->scored;
  }
  if (out.needles > 0) out.needle_log_prob /= out.needles;
  if (out.texts == 0) return out;
  const double texts = out.texts;
  out.bits_per_value = bits / values;
  out.kl /= texts;
  out.top1 /= texts;
  if (out.texts > 1) {
    const double variance = std::max(0.0, (squares / texts - out.kl * out.kl) / (texts - 1));
    out.kl_error = std::sqrt(variance);
  }
  out.perplexity = std::exp(-log_prob / scored);
  out.exact_perplexity = std::exp(-exact_log_prob / scored);
  return out;
}

}  // namespace

std::vector<EvalSummary> summarise(const std::vector<EvalRow>& rows) {
  std::vector<std::string> methods;
  std::vector<uint32_t> lengths;
  for (const EvalRow& row : rows) {
    if (std::find(methods.begin(), methods.end(), row.method) == methods.end())
      methods.push_back(row.method);
    if (std::find(lengths.begin(), lengths.end(), row.tokens) == lengths.end())
      lengths.push_back(row.tokens);
  }
  std::sort(lengths.begin(), lengths.end());
  std::vector<EvalSummary> out;
  for (uint32_t length : lengths) {
    for (const std::string& method : methods) {
      std::vector<const EvalRow*> group;
      for (const EvalRow& row : rows) {
        if (row.method == method && row.tokens == length) group.push_back(&row);
      }
      if (!group.empty()) out.push_back(summarise_group(group));
    }
  }
  return out;
}

}  // namespace kvcodec::tools
