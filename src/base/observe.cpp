// SPDX-License-Identifier: Apache-2.0
#include "kvcodec/observe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace kvcodec {
namespace {

constexpr std::array kBuckets = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0};

// A JSON string.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// A label's value: the same escapes, but a line feed is \n.
std::string label_value(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string rendered(const Labels& labels) {
  std::string out;
  for (const auto& [name, value] : labels)
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", name, label_value(value));
  return out;
}

std::string braces(const std::string& labels, const std::string& more = "") {
  if (labels.empty() && more.empty()) return "";
  return fmt::format("{{{}{}{}}}", labels, labels.empty() || more.empty() ? "" : ",", more);
}

}  // namespace

double Trace::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Trace::span(std::string_view track, std::string_view name, double begin, double end,
                 Labels details) {
  const std::lock_guard lock(mutex_);
  events_.push_back(
      {std::string(track), std::string(name), begin, end, 0, std::move(details), false});
}

void Trace::value(std::string_view name, double at, double value) {
  const std::lock_guard lock(mutex_);
  events_.push_back({"", std::string(name), at, at, value, {}, true});
}

std::string Trace::chrome_json() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> tracks;
  for (const Event& event : events_)
    if (!event.is_value) tracks.push_back(event.track);
  std::sort(tracks.begin(), tracks.end());
  tracks.erase(std::unique(tracks.begin(), tracks.end()), tracks.end());
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (size_t i = 0; i < tracks.size(); ++i)
    out += fmt::format(
        "{{\"ph\":\"M\",\"pid\":1,\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}},"
        "\n",
        i + 1, quoted(tracks[i]));
  for (const Event& event : events_) {
    if (event.is_value) {
      out += fmt::format(
          "{{\"ph\":\"C\",\"pid\":1,\"name\":{},\"ts\":{:.3f},\"args\":{{\"value\":{}}}}},\n",
          quoted(event.name), event.begin * 1e6, event.value);
      continue;
    }
    const auto track = std::lower_bound(tracks.begin(), tracks.end(), event.track);
    std::string details;
    for (const auto& [name, value] : event.details)
      details += fmt::format("{}{}:{}", details.empty() ? "" : ",", quoted(name), quoted(value));
    out += fmt::format(
        "{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"name\":{},\"ts\":{:.3f},\"dur\":{:.3f},"
        "\"args\":{{{}}}}},\n",
        track - tracks.begin() + 1, quoted(event.name), event.begin * 1e6,
        (event.end - event.begin) * 1e6, details);
  }
  // The process's name comes last, as JSON has no comma after the last element.
  return out +
         "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"kvcodec\"}}\n]}\n";
}

Metrics::Family& Metrics::family(std::string_view name, Kind kind) {
  const auto found = families_.find(name);
  if (found != families_.end() && !found->second.series.empty()) return found->second;
  Family& made = families_[std::string(name)];
  made.kind = kind;
  return made;
}

void Metrics::add(std::string_view counter, double amount, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  family(counter, Kind::counter).series[rendered(labels)].value += amount;
}

void Metrics::set(std::string_view gauge, double value, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  family(gauge, Kind::gauge).series[rendered(labels)].value = value;
}

void Metrics::observe(std::string_view histogram, double seconds, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  Series& series = family(histogram, Kind::histogram).series[rendered(labels)];
  series.buckets.resize(kBuckets.size() + 1);
  const auto bucket = std::lower_bound(kBuckets.begin(), kBuckets.end(), seconds);
  ++series.buckets[static_cast<size_t>(bucket - kBuckets.begin())];
  series.value += seconds;
}

void Metrics::describe(std::string_view name, std::string_view help) {
  const std::lock_guard lock(mutex_);
  families_[std::string(name)].help = help;
}

std::string Metrics::text() const {
  static constexpr const char* kKinds[] = {"counter", "gauge", "histogram"};
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& [name, family] : families_) {
    if (family.series.empty()) continue;
    if (!family.help.empty()) out += fmt::format("# HELP {} {}\n", name, family.help);
    out += fmt::format("# TYPE {} {}\n", name, kKinds[static_cast<size_t>(family.kind)]);
    for (const auto& [labels, series] : family.series) {
      if (family.kind != Kind::histogram) {
        out += fmt::format("{}{} {}\n", name, braces(labels), series.value);
        continue;
      }
      uint64_t below = 0;
      for (size_t i = 0; i < series.buckets.size(); ++i) {
        below += series.buckets[i];
        const std::string edge =
            i < kBuckets.size() ? fmt::format("le=\"{}\"", kBuckets[i]) : "le=\"+Inf\"";
        out += fmt::format("{}_bucket{} {}\n", name, braces(labels, edge), below);
      }
      out += fmt::format("{}_sum{} {}\n", name, braces(labels), series.value);
      out += fmt::format("{}_count{} {}\n", name, braces(labels), below);
    }
  }
  return out;
}

std::string log_line(const LogEvent& event) {
  static constexpr const char* kLevels[] = {"debug", "info", "warning"};
  std::string out = fmt::format("{{\"level\":\"{}\",\"event\":{}",
                                kLevels[static_cast<size_t>(event.level)], quoted(event.event));
  for (const auto& [name, value] : event.fields)
    out += fmt::format(",{}:{}", quoted(name), quoted(value));
  return out + "}";
}

}  // namespace kvcodec
