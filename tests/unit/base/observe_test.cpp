// SPDX-License-Identifier: Apache-2.0
#include "kvcodec/observe.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

namespace kvcodec {
namespace {

TEST(Trace, IsChromeJson) {
  Trace trace;
  trace.span("transfer", "chunk 0", 0.001, 0.003, {{"object", "a\"b\\c\n"}});
  trace.span("decode", "chunk 0", 0.003, 0.004);
  trace.value("bytes", 0.002, 17);
  const auto json = nlohmann::json::parse(trace.chrome_json());
  size_t spans = 0, names = 0, values = 0;
  for (const auto& event : json["traceEvents"]) {
    spans += event["ph"] == "X";
    names += event["ph"] == "M" && event["name"] == "thread_name";
    values += event["ph"] == "C";
    if (event["ph"] != "X" || event["args"].empty()) continue;
    EXPECT_EQ(event["ts"], 1000.0);
    EXPECT_EQ(event["dur"], 2000.0);
    EXPECT_EQ(event["args"]["object"], "a\"b\\c\n");
  }
  EXPECT_EQ(spans, 2u);
  EXPECT_EQ(names, 2u);
  EXPECT_EQ(values, 1u);
  EXPECT_TRUE(nlohmann::json::accept(Trace().chrome_json()));
}

TEST(Metrics, TextFormat) {
  Metrics metrics;
  metrics.describe("fetches_total", "Fetches.");
  metrics.add("fetches_total", 1, {{"end", "complete"}});
  metrics.add("fetches_total", 2, {{"end", "complete"}});
  metrics.add("fetches_total", 1, {{"end", "a\"b\\c\nz"}});
  metrics.set("link", 5);
  metrics.set("link", 7.5);
  metrics.observe("seconds", 0.002, {{"stage", "all"}});
  metrics.observe("seconds", 1000, {{"stage", "all"}});
  const std::string text = metrics.text();
  for (const char* line :
       {"# HELP fetches_total Fetches.\n", "# TYPE fetches_total counter\n",
        "fetches_total{end=\"complete\"} 3\n", "fetches_total{end=\"a\\\"b\\\\c\\nz\"} 1\n",
        "# TYPE link gauge\n", "link 7.5\n", "# TYPE seconds histogram\n",
        "seconds_bucket{stage=\"all\",le=\"0.001\"} 0\n",
        "seconds_bucket{stage=\"all\",le=\"0.003\"} 1\n",
        "seconds_bucket{stage=\"all\",le=\"100\"} 1\n",
        "seconds_bucket{stage=\"all\",le=\"+Inf\"} 2\n", "seconds_sum{stage=\"all\"} 1000.002\n",
        "seconds_count{stage=\"all\"} 2\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  EXPECT_TRUE(Metrics().text().empty());
}

TEST(Metrics, ThreadsAddUp) {
  Metrics metrics;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) metrics.add("n", 1);
      });
  }
  EXPECT_EQ(metrics.text(), "# TYPE n counter\nn 4000\n");
}

TEST(Log, OneLineOfJson) {
  const std::string line =
      log_line({LogLevel::warning, "fetch.hedge", {{"chunk", "3"}, {"why", "a\nb"}}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["event"], "fetch.hedge");
  EXPECT_EQ(json["why"], "a\nb");
}

}  // namespace
}  // namespace kvcodec
