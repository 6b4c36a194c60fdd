// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>

#include "fetch_bench.h"

namespace kvcodec::bench {
namespace {

struct Trace {
  std::string name;
  LinkTrace link;
};

double mean_rate(const LinkTrace& trace) {
  double bits = 0, seconds = 0;
  for (const auto& step : trace.steps) {
    bits += step.seconds * step.bits_per_second;
    seconds += step.seconds;
  }
  return bits / seconds;
}

// Five kinds of jitter around one mean, in bits a second.
std::vector<Trace> make_traces(double mean) {
  std::vector<Trace> traces;
  std::mt19937 random(7);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<>(low, high)(random);
  };
  LinkTrace drops, square, walk, outages, bursts;
  for (int i = 0; i < 20; ++i) {
    drops.steps.push_back({uniform(0.3, 1.2), 1.5});
    drops.steps.push_back({uniform(0.3, 1.2), 0.15});
    outages.steps.push_back({uniform(0.5, 1.5), 1.3});
    outages.steps.push_back({uniform(0.1, 0.6), 0});
    bursts.steps.push_back({uniform(0.5, 1.5), 0.4});
    bursts.steps.push_back({uniform(0.1, 0.5), 4});
  }
  square.steps = {{1.5, 1.8}, {1.5, 0.2}};
  double level = 0;
  for (int i = 0; i < 100; ++i) {
    level = std::clamp(level + uniform(-0.8, 0.8), -2.0, 1.0);
    walk.steps.push_back({0.25, std::exp(level)});
  }
  traces = {{"drops to a tenth", drops},
            {"square wave", square},
            {"random walk", walk},
            {"outages", outages},
            {"bursts", bursts}};
  for (Trace& trace : traces) {
    const double factor = mean / mean_rate(trace.link);
    for (auto& step : trace.link.steps) step.bits_per_second *= factor;
  }
  return traces;
}

struct Measured {
  double seconds = 0;
  std::vector<std::string> renditions;
};

Measured fetch_once(Store& store, const LinkTrace& trace, const LongPrefix& prefix,
                    const Profile* profile, const DecodeRates& rates,
                    const std::vector<std::string>& allowed, std::vector<std::byte>& memory,
                    int threads) {
  const auto link = limit_bandwidth(store, trace);
  const auto restorer = value_or_fail(host_restorer({memory, &prefix.geometry}));
  PrefixFetcher fetcher(*link, rates);
  AdaptiveOptions options;
  options.profile = profile;
  options.renditions = allowed;
  options.threads = threads;
  options.stall_seconds = 5;
  auto report = value_or_fail(fetcher.fetch(prefix.ns, prefix.tokens, *restorer, options));
  if (report.stopped_by) fail("adaptive: " + report.stopped_by->message);
  return {report.seconds, std::move(report.renditions)};
}

std::string shares(const std::vector<std::string>& renditions) {
  std::string text;
  std::vector<std::string> names = renditions;
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                        std::count(renditions.begin(), renditions.end(), name), name);
  return text;
}

}  // namespace

std::string adaptive(const FetchSettings& settings, const LongPrefix& prefix,
                     const Profile* profile) {
  std::vector<std::string> names = {"exact-h512", "int8-h512"};
  if (profile != nullptr)
    for (Tier tier : {Tier::small}) names.push_back(rendition_name(tier, profile, 512));
  const auto store = publish(prefix, settings, profile, names);
  std::vector<std::byte> memory(prefix.memory.size());
  const auto catalog = value_or_fail(read_catalog(*store, prefix.ns, prefix.tokens));
  // Decode rates of this machine: each rendition once, without a link.
  DecodeRates rates;
  std::vector<double> decode(names.size()), bytes(names.size());
  for (size_t r = 0; r < names.size(); ++r) {
    const double seconds = fetch_once(*store, LinkTrace{{{1, 1e12}}}, prefix, profile, rates,
                                      {names[r]}, memory, settings.threads)
                               .seconds;
    decode[r] = seconds;
    for (const auto& sizes : catalog.bytes) bytes[r] += sizes[r];
    const auto rendition = value_or_fail(parse_rendition(names[r]));
    rates.set(rendition.tier, rendition.picture_height,
              static_cast<double>(prefix.memory.size()) / seconds);
    fmt::print("{}: {:.1f} MB, decoded in {:.2f} s\n", names[r], bytes[r] / 1e6, seconds);
  }
  // The mean at which the coarsest and the fastest to decode take equally long: where it matters.
  const size_t fast =
      static_cast<size_t>(std::min_element(decode.begin(), decode.end()) - decode.begin());
  const double slowest = *std::max_element(decode.begin(), decode.end());
  const double mean = 8 * bytes[fast] / std::max(slowest, 2 * decode[fast]);
  std::string rows;
  for (const Trace& trace : make_traces(mean)) {
    // What one would publish or ask for, knowing the average alone.
    size_t by_average = 0;
    std::vector<double> expected(names.size());
    for (size_t r = 0; r < names.size(); ++r) {
      expected[r] = std::max(8 * bytes[r] / mean, decode[r]);
      if (expected[r] < expected[by_average]) by_average = r;
    }
    std::vector<double> fixed(names.size(), 1e300);
    Measured best{1e300, {}};
    for (uint32_t round = 0; round < settings.repeat; ++round) {
      for (size_t r = 0; r < names.size(); ++r)
        fixed[r] = std::min(fixed[r], fetch_once(*store, trace.link, prefix, profile, rates,
                                                 {names[r]}, memory, settings.threads)
                                          .seconds);
      auto measured =
          fetch_once(*store, trace.link, prefix, profile, rates, {}, memory, settings.threads);
      if (measured.seconds < best.seconds) best = std::move(measured);
    }
    const double hindsight = *std::min_element(fixed.begin(), fixed.end());
    fmt::print(
        "{}, mean {:.0f} Mb/s: adaptive {:.2f} s ({}); fixed by average {} {:.2f} s; best in "
        "hindsight {:.2f} s\n",
        trace.name, mean / 1e6, best.seconds, shares(best.renditions), names[by_average],
        fixed[by_average], hindsight);
    std::string each;
    for (size_t r = 0; r < names.size(); ++r)
      each += fmt::format("{}{{\"rendition\":\"{}\",\"seconds\":{:.4f}}}", each.empty() ? "" : ",",
                          names[r], fixed[r]);
    rows += fmt::format(
        "{}{{\"trace\":\"{}\",\"mean_mbps\":{:.1f},\"adaptive_seconds\":{:.4f},\"chosen\":\"{}\","
        "\"by_average\":\"{}\",\"by_average_seconds\":{:.4f},\"hindsight_seconds\":{:.4f},"
        "\"fixed\":[{}]}}",
        rows.empty() ? "" : ",", trace.name, mean / 1e6, best.seconds, shares(best.renditions),
        names[by_average], fixed[by_average], hindsight, each);
  }
  return fmt::format("{{\"chunks\":{},\"rows\":[{}]}}", catalog.chunks(), rows);
}

}  // namespace kvcodec::bench
