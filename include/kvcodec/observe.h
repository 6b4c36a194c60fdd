// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What a fetch tells of itself. Nothing here names a store's address or a credential: objects are
// named by digests and renditions.
namespace kvcodec {

using Labels = std::vector<std::pair<std::string, std::string>>;

// Spans of time on named tracks. Thread-safe.
class Trace {
 public:
  Trace() : start_(std::chrono::steady_clock::now()) {}
  double now() const;  // seconds since it was made
  // `name` on `track` from `begin` to `end`, seconds of now().
  void span(std::string_view track, std::string_view name, double begin, double end,
            Labels details = {});
  // A value that changes, drawn as a curve.
  void value(std::string_view name, double at, double value);
  // JSON of Chrome's trace event format, which Perfetto and chrome://tracing open.
  std::string chrome_json() const;

 private:
  struct Event {
    std::string track, name;
    double begin = 0, end = 0, value = 0;
    Labels details;
    bool is_value = false;
  };
  const std::chrono::steady_clock::time_point start_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

// Counters, gauges and histograms in the text format of Prometheus (version 0.0.4). Names are
// [a-zA-Z_:][a-zA-Z0-9_:]*. One name is one kind. Thread-safe.
class Metrics {
 public:
  void add(std::string_view counter, double amount, const Labels& labels = {});
  void set(std::string_view gauge, double value, const Labels& labels = {});
  // A histogram of seconds, with buckets from 1 ms to 100 s.
  void observe(std::string_view histogram, double seconds, const Labels& labels = {});
  // What a name is, shown as its HELP line.
  void describe(std::string_view name, std::string_view help);
  std::string text() const;

 private:
  enum class Kind : uint8_t { counter, gauge, histogram };
  struct Series {
    double value = 0;  // of a histogram: the sum
    std::vector<uint64_t> buckets;
  };
  struct Family {
    Kind kind = Kind::counter;
    std::string help;
    std::map<std::string, Series> series;  // by rendered labels
  };
  Family& family(std::string_view name, Kind kind);
  mutable std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;
};

enum class LogLevel : uint8_t { debug, info, warning };
struct LogEvent {
  LogLevel level = LogLevel::info;
  std::string_view event;  // "fetch.hedge"
  Labels fields;
};
// Called from any thread of a fetch, one at a time a fetch.
using LogSink = std::function<void(const LogEvent&)>;
// One line of JSON, without a time: {"level":"info","event":"fetch.hedge","chunk":"3"}.
std::string log_line(const LogEvent& event);

// Where a fetch reports to; each may be missing. Borrowed.
struct Observers {
  Trace* trace = nullptr;
  Metrics* metrics = nullptr;
  LogSink log;
};

}  // namespace kvcodec
