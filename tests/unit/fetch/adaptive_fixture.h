// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "fetch/restore_loop.h"
#include "fetch_fixture.h"
#include "kvcodec/adaptive.h"
#include "store/faulty_store.h"

namespace kvcodec {

// The fixture's prefix as exact, int8 and int8-h144.
class AdaptiveFixture : public FetchFixture {
 protected:
  static constexpr size_t kChunks = 5;

  void SetUp() override {
    FetchFixture::SetUp();
    const std::vector<std::string> names = {"exact", "int8", "int8-h144"};
    ASSERT_TRUE(
        publish_renditions(*store_, namespace_, tokens_, source(), names, publish_options()).ok());
  }

  AdaptiveOptions adaptive_options() const {
    AdaptiveOptions options;
    options.chunk_tokens = kTestChunk;
    options.threads = 1;
    return options;
  }

  Result<AdaptiveReport> fetch(Store& store, Target& target, const AdaptiveOptions& options) const {
    PrefixFetcher fetcher(store, *DecodeRates::of("cpu"));
    const auto restorer = host_restorer(target.target());
    EXPECT_TRUE(restorer.ok());
    return fetcher.fetch(namespace_, tokens_, **restorer, options);
  }

  // What the sequential executor makes of these renditions.
  Target reference(const std::vector<std::string>& chosen) const {
    Target target = make_target();
    const std::vector<Digest> keys = chunk_keys(namespace_, tokens_, kTestChunk);
    std::vector<std::string> names = chosen;
    std::vector<Rendition> renditions;
    std::vector<size_t> indices;
    for (size_t i = 0; i < chosen.size(); ++i) {
      renditions.push_back(*parse_rendition(chosen[i]));
      indices.push_back(i);
    }
    RestoreRequest request;
    request.ns = namespace_;
    request.keys = keys;
    request.renditions = renditions;
    request.rendition_names = names;
    request.chunk_tokens = kTestChunk;
    request.decode.threads = 1;
    const auto restorer = host_restorer(target.target());
    const FetchReport report =
        restore_one_by_one(*store_, **restorer, request, indices, UINT64_MAX);
    EXPECT_EQ(report.chunks, chosen.size());
    return target;
  }

  // Whatever a fetch chose, it restored what the reference does, and nothing else.
  void expect_as_reference(const Target& target, const AdaptiveReport& report) const {
    EXPECT_EQ(report.tokens_restored, report.chunks * kTestChunk);
    ASSERT_EQ(report.renditions.size(), report.chunks);
    EXPECT_TRUE(target.memory == reference(report.renditions).memory);
  }
};

// Lets calls wait until it opens.
class Gate {
 public:
  ~Gate() { open(); }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

}  // namespace kvcodec
