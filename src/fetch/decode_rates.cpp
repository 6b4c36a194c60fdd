// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "base/error.h"
#include "kvcodec/planner.h"

namespace kvcodec {
namespace {

constexpr uint32_t kDefaultHeight = EncodeOptions{}.max_picture_height;
// How much a single measurement moves what is known.
constexpr double kObservedShare = 0.3;

struct Row {
  const char* machine;
  Tier tier;
  uint32_t picture_height;
  double megabytes_per_second;
};
// cpu: `kvcodec bench` on SmolLM2-135M, chunks of 256 tokens one by one, two cores. h200:
// bench/results/device.json. Only a start: what a fetch measures replaces them.
constexpr Row kTable[] = {
    {"cpu", Tier::exact, 2048, 45},     {"cpu", Tier::exact, 512, 210},
    {"cpu", Tier::int8, 2048, 46},      {"cpu", Tier::int8, 512, 235},
    {"cpu", Tier::high, 2048, 8},       {"cpu", Tier::high, 512, 13},
    {"cpu", Tier::balanced, 2048, 13},  {"cpu", Tier::balanced, 512, 17},
    {"cpu", Tier::small, 2048, 34},     {"cpu", Tier::small, 512, 29},
    {"h200", Tier::exact, 2048, 6600},  {"h200", Tier::int8, 2048, 4025},
    {"h200", Tier::high, 2048, 8190},   {"h200", Tier::balanced, 2048, 11937},
    {"h200", Tier::small, 2048, 15541},
};

uint32_t height_of(const Rendition& rendition) {
  return rendition.picture_height > 0 ? rendition.picture_height : kDefaultHeight;
}

}  // namespace

Result<DecodeRates> DecodeRates::of(const std::string& name) {
  DecodeRates rates;
  for (const Row& row : kTable)
    if (name == row.machine)
      rates.set(row.tier, row.picture_height, row.megabytes_per_second * 1e6);
  if (!rates.rates_.empty()) return rates;
  return make_error(ErrorCode::invalid_argument, "decode rates: expected cpu or h200, found \"{}\"",
                    name);
}

double DecodeRates::bytes_per_second(const Rendition& rendition) const {
  const auto distance = [&](const std::pair<Tier, uint32_t>& key) {
    const int tiers = std::abs(static_cast<int>(key.first) - static_cast<int>(rendition.tier));
    const double heights = std::abs(std::log2(static_cast<double>(key.second)) -
                                    std::log2(static_cast<double>(height_of(rendition))));
    return std::tuple(tiers, heights);
  };
  const auto nearest = std::min_element(
      rates_.begin(), rates_.end(),
      [&](const auto& a, const auto& b) { return distance(a.first) < distance(b.first); });
  return nearest == rates_.end() ? 0 : nearest->second;
}

void DecodeRates::set(Tier tier, uint32_t picture_height, double bytes_per_second) {
  rates_[{tier, picture_height > 0 ? picture_height : kDefaultHeight}] = bytes_per_second;
}

void DecodeRates::observe(const Rendition& rendition, uint64_t raw_bytes, double seconds) {
  if (raw_bytes == 0 || seconds <= 0) return;
  const double found = static_cast<double>(raw_bytes) / seconds;
  const double known = bytes_per_second(rendition);
  // Averaged as times, not as rates: a slow measurement counts for what it costs.
  const double rate =
      known > 0 ? 1 / (kObservedShare / found + (1 - kObservedShare) / known) : found;
  rates_[{rendition.tier, height_of(rendition)}] = rate;
}

}  // namespace kvcodec
