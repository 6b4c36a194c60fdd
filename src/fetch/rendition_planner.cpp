// SPDX-License-Identifier: Apache-2.0
#include "fetch/rendition_planner.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace kvcodec {
namespace {

// Computing must be expected to end so much sooner: estimates are no better than that.
constexpr double kClearlySooner = 0.85;
// Chunks that are planned before the decoder has been measured: what it is said to do may be wrong.
constexpr size_t kUnmeasuredChunks = 4;

bool usable(const Rendition& rendition, const std::string& name, const PlannerOptions& options) {
  if (!at_least(rendition.tier, options.lowest_tier)) return false;
  if (!is_calibrated(rendition.tier)) return true;
  return options.profile != nullptr &&
         rendition_name(rendition.tier, options.profile, rendition.picture_height) == name;
}

}  // namespace

Result<std::unique_ptr<RenditionPlanner>> RenditionPlanner::create(const Digest& ns,
                                                                   std::vector<Digest> keys,
                                                                   PrefixCatalog catalog,
                                                                   DecodeRates rates,
                                                                   const PlannerOptions& options) {
  std::unique_ptr<RenditionPlanner> planner(new RenditionPlanner);
  for (const std::string& name : options.allowed) {
    KVCODEC_TRY(const Rendition rendition, parse_rendition(name));
    if (!usable(rendition, name, options))
      return make_error(ErrorCode::invalid_argument,
                        "fetch: rendition {} is below the fidelity floor, tier {}, or of another "
                        "profile than the one given",
                        name, tier_name(options.lowest_tier));
  }
  std::vector<size_t> columns;
  std::vector<Rendition> parsed;
  for (size_t c = 0; c < catalog.renditions.size(); ++c) {
    const std::string& name = catalog.renditions[c];
    KVCODEC_TRY(Rendition rendition, parse_rendition(name));
    const bool asked =
        options.allowed.empty() ||
        std::find(options.allowed.begin(), options.allowed.end(), name) != options.allowed.end();
    if (asked && usable(rendition, name, options)) columns.push_back(c);
    parsed.push_back(std::move(rendition));
  }
  // From the finest; of one tier, small pictures first: they start sooner.
  std::stable_sort(columns.begin(), columns.end(), [&](size_t a, size_t b) {
    const auto height = [&](size_t c) {
      return parsed[c].picture_height > 0 ? parsed[c].picture_height : UINT32_MAX;
    };
    return std::pair(parsed[a].tier, height(a)) < std::pair(parsed[b].tier, height(b));
  });
  if (columns.size() > 32) columns.resize(32);  // PlanQuestion::failed has as many bits
  for (size_t c : columns) {
    planner->renditions_.push_back(parsed[c]);
    planner->names_.push_back(catalog.renditions[c]);
  }
  for (const auto& all : catalog.bytes) {
    std::vector<uint32_t> sizes;
    sizes.reserve(columns.size());
    for (size_t c : columns) sizes.push_back(all[c]);
    if (std::all_of(sizes.begin(), sizes.end(), [](uint32_t s) { return s == 0; })) break;
    planner->sizes_.push_back(std::move(sizes));
  }
  planner->mean_after_.resize(planner->sizes_.size(), std::vector<double>(columns.size()));
  for (size_t r = 0; r < columns.size(); ++r) {
    double sum = 0, count = 0;
    for (size_t chunk = planner->sizes_.size(); chunk-- > 0;) {
      planner->mean_after_[chunk][r] = count > 0 ? sum / count : 0;
      sum += planner->sizes_[chunk][r];
      count += planner->sizes_[chunk][r] > 0;
    }
  }
  planner->ns_ = ns;
  planner->keys_ = std::move(keys);
  planner->options_ = options;
  planner->chunk_tokens_ = catalog.chunk_tokens;
  planner->rates_ = std::move(rates);
  planner->measured_.resize(columns.size());
  return planner;
}

double RenditionPlanner::decode_seconds(size_t rendition) const {
  const double rate = rates_.bytes_per_second(renditions_[rendition]);
  return rate > 0 ? static_cast<double>(options_.chunk_bytes) / rate : 0;
}

Wanted RenditionPlanner::wanted(size_t chunk, size_t rendition) const {
  return {rendition, object_name(ns_, keys_[chunk], names_[rendition]), sizes_[chunk][rendition],
          decode_seconds(rendition)};
}

// Of those that are about the smallest, the one that is decoded soonest.
size_t RenditionPlanner::smallest(const PlanQuestion& question) const {
  constexpr double kAbout = 1.1;
  const auto& sizes = sizes_[question.chunk];
  const auto usable = [&](size_t r) { return sizes[r] > 0 && (question.failed >> r & 1) == 0; };
  uint32_t least = UINT32_MAX;
  for (size_t r = 0; r < sizes.size(); ++r)
    if (usable(r)) least = std::min(least, sizes[r]);
  size_t best = sizes.size();
  for (size_t r = 0; r < sizes.size(); ++r) {
    if (!usable(r) || sizes[r] > kAbout * least) continue;
    if (best == sizes.size() || decode_seconds(r) < decode_seconds(best)) best = r;
  }
  return best;
}

Result<std::optional<Wanted>> RenditionPlanner::plan(const PlanQuestion& question) {
  const std::lock_guard lock(mutex_);
  const size_t fallback = smallest(question);
  if (fallback == renditions_.size())
    return make_error(ErrorCode::not_found, "{}: no other rendition",
                      object_name(ns_, keys_[question.chunk], "*"));
  if (question.load.bytes_per_second <= 0) {
    // The smallest object measures the link soonest; what follows waits for that.
    if (question.load.bytes_under_way > 0 && question.failed == 0) return std::optional<Wanted>{};
    return std::optional<Wanted>(wanted(question.chunk, fallback));
  }
  const bool measured = std::find(measured_.begin(), measured_.end(), true) != measured_.end();
  if (!measured && question.chunk >= kUnmeasuredChunks && question.failed == 0 &&
      renditions_.size() > 1)
    return std::optional<Wanted>{};
  std::vector<RenditionChoice> choices;
  for (size_t r = 0; r < renditions_.size(); ++r) {
    RenditionChoice choice;
    if ((question.failed >> r & 1) == 0) choice.bytes = sizes_[question.chunk][r];
    if (question.current == r) choice.bytes = question.current_bytes_left;
    choice.mean_bytes = mean_after_[question.chunk][r];
    choice.decode_seconds = decode_seconds(r);
    choices.push_back(choice);
  }
  const auto planned = plan_chunk_fetch(choices, question.load);
  if (!planned) return std::optional<Wanted>(wanted(question.chunk, fallback));
  if (question.chunk == 0 || expected_seconds_ == 0) expected_seconds_ = planned->seconds;
  if (options_.prefill.known() && !question.current) {
    const auto first = static_cast<uint32_t>(question.chunk * chunk_tokens_);
    const auto end = static_cast<uint32_t>(sizes_.size() * chunk_tokens_);
    const double compute = question.load.decode_backlog + options_.prefill.seconds(first, end);
    if (compute < kClearlySooner * planned->seconds) {
      recompute_is_sooner_ = true;
      return make_error(ErrorCode::unavailable,
                        "fetch: from token {} on, computing is expected to take {:.3f} s and "
                        "fetching {:.3f} s",
                        first, compute, planned->seconds);
    }
  }
  return std::optional<Wanted>(wanted(question.chunk, planned->choice));
}

void RenditionPlanner::measured(std::span<const size_t> renditions, double seconds) {
  const std::lock_guard lock(mutex_);
  double expected = 0;
  for (size_t r : renditions) expected += decode_seconds(r);
  // Of a mixture each has its expected share of the time.
  std::vector<size_t> counts(renditions_.size());
  for (size_t r : renditions) ++counts[r];
  std::vector<double> times(renditions_.size());
  for (size_t r = 0; r < counts.size(); ++r)
    times[r] =
        expected > 0
            ? seconds * static_cast<double>(counts[r]) * decode_seconds(r) / expected
            : seconds * static_cast<double>(counts[r]) / static_cast<double>(renditions.size());
  for (size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] == 0 || times[r] <= 0) continue;
    const uint64_t bytes = counts[r] * options_.chunk_bytes;
    // The first measurement is worth more than a table of another machine.
    if (!measured_[r])
      rates_.set(renditions_[r].tier, renditions_[r].picture_height,
                 static_cast<double>(bytes) / times[r]);
    else
      rates_.observe(renditions_[r], bytes, times[r]);
    measured_[r] = true;
  }
}

DecodeRates RenditionPlanner::rates() const {
  const std::lock_guard lock(mutex_);
  return rates_;
}
double RenditionPlanner::expected_seconds() const {
  const std::lock_guard lock(mutex_);
  return expected_seconds_;
}
bool RenditionPlanner::recompute_is_sooner() const {
  const std::lock_guard lock(mutex_);
  return recompute_is_sooner_;
}

}  // namespace kvcodec
