// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "fetch_fixture.h"

namespace kvcodec {
namespace {

class FetchPrefix : public FetchFixture {};

TEST_F(FetchPrefix, RestoresWholeChunksAndNoMore) {
  publish(*store_);
  Target target = make_target();
  const auto report = fetch_prefix(*store_, namespace_, tokens_, target.target(), fetch_options());
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_FALSE(report->stopped_by.has_value());
  EXPECT_EQ(report->tokens_restored, 5 * kTestChunk);
  EXPECT_EQ(report->chunks, 5u);
  expect_restored(target, 5 * kTestChunk);
}

TEST_F(FetchPrefix, MatchCountsLeadingChunks) {
  publish(*store_);
  EXPECT_EQ(*match_prefix(*store_, namespace_, tokens_, "exact", kTestChunk), 5 * kTestChunk);
  EXPECT_EQ(*match_prefix(*store_, namespace_, tokens_, "int8", kTestChunk), 0u);
  std::vector<int32_t> other = tokens_;
  other[2 * kTestChunk + 3] ^= 1;
  EXPECT_EQ(*match_prefix(*store_, namespace_, other, "exact", kTestChunk), 2 * kTestChunk);
  // A chunk beyond a gap is no use: attention needs all that is before it.
  ASSERT_TRUE(store_->remove(name(1)).ok());
  EXPECT_EQ(*match_prefix(*store_, namespace_, tokens_, "exact", kTestChunk), kTestChunk);
  const Digest foreign = sha256(std::as_bytes(std::span("other model")));
  EXPECT_EQ(*match_prefix(*store_, foreign, tokens_, "exact", kTestChunk), 0u);
}

TEST_F(FetchPrefix, OtherContinuationSharesThePrefix) {
  publish(*store_);
  std::vector<int32_t> other = tokens_;
  other[3 * kTestChunk] ^= 1;
  Target target = make_target();
  const auto report = fetch_prefix(*store_, namespace_, other, target.target(), fetch_options());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->tokens_restored, 3 * kTestChunk);
  ASSERT_TRUE(report->stopped_by.has_value());
  EXPECT_EQ(report->stopped_by->code, ErrorCode::not_found);
  expect_restored(target, 3 * kTestChunk);
}

TEST_F(FetchPrefix, MaxTokensBoundsTheFetch) {
  publish(*store_);
  FetchOptions options = fetch_options();
  options.max_tokens = 3 * kTestChunk - 1;
  Target target = make_target();
  const auto report = fetch_prefix(*store_, namespace_, tokens_, target.target(), options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->tokens_restored, 2 * kTestChunk);
  expect_restored(target, 2 * kTestChunk);
}

TEST_F(FetchPrefix, ShortOrEmptySequences) {
  Target target = make_target();
  for (size_t length : {size_t{0}, size_t{1}, size_t{kTestChunk - 1}}) {
    const std::span<const int32_t> few(tokens_.data(), length);
    const auto published = publish_prefix(*store_, namespace_, few, source(), publish_options());
    ASSERT_TRUE(published.ok());
    EXPECT_EQ(published->chunks, 0u);
    const auto report = fetch_prefix(*store_, namespace_, few, target.target(), fetch_options());
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->tokens_restored, 0u);
    EXPECT_FALSE(report->stopped_by.has_value());
  }
  expect_restored(target, 0);
}

TEST_F(FetchPrefix, PublishLeavesPresentChunksAlone) {
  const auto first = publish_prefix(*store_, namespace_, tokens_, source(), publish_options());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->written, 5u);
  EXPECT_EQ(first->raw_bytes, 5 * kTestChunk * geometry_.shape.token_bytes());
  ASSERT_TRUE(store_->remove(name(2)).ok());
  const auto second = publish_prefix(*store_, namespace_, tokens_, source(), publish_options());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->written, 1u);
  EXPECT_EQ(second->object_bytes, first->object_bytes);
  PublishOptions replace = publish_options();
  replace.replace = true;
  EXPECT_EQ(publish_prefix(*store_, namespace_, tokens_, source(), replace)->written, 5u);
}

TEST_F(FetchPrefix, PublishGivesTheSameBytesWhateverIsInFlight) {
  const uint64_t chunk_bytes = kTestChunk * uint64_t{geometry_.shape.token_bytes()};
  const std::vector<Digest> keys = chunk_keys(namespace_, tokens_, kTestChunk);
  for (Tier tier : {Tier::exact, Tier::int8}) {
    const char* rendition = tier == Tier::exact ? "exact" : "int8";
    PublishOptions options = publish_options(tier);
    options.encode.verify = true;
    for (uint64_t in_flight : {uint64_t{0}, 2 * chunk_bytes, 3 * chunk_bytes - 1, 4 * chunk_bytes,
                               uint64_t{UINT64_MAX}}) {
      options.max_bytes_in_flight = in_flight;
      size_t calls = 0;
      options.progress = [&](size_t done, size_t total) {
        EXPECT_EQ(done, ++calls);
        EXPECT_EQ(total, 5u);
        EXPECT_TRUE(store_->stat(name(done - 1, rendition)).ok()) << "stored when it is reported";
      };
      (void)store_->remove(name(0, rendition));
      (void)store_->remove(name(3, rendition));
      (void)store_->remove(name(4, rendition));
      const bool first = !store_->stat(name(1, rendition)).ok();
      const auto report = publish_prefix(*store_, namespace_, tokens_, source(), options);
      ASSERT_TRUE(report.ok()) << report.error().message;
      EXPECT_EQ(report->written, first ? 5u : 3u);
      EXPECT_EQ(calls, 5u);
      uint64_t bytes = 0;
      for (uint32_t i = 0; i < 5; ++i) {
        const auto alone = encode_chunk(source(), {i * kTestChunk, kTestChunk},
                                        {namespace_, keys[i], i * kTestChunk}, options.encode);
        ASSERT_TRUE(alone.ok());
        EXPECT_EQ(*get_object(*store_, name(i, rendition), UINT64_MAX), *alone) << i;
        bytes += alone->size();
      }
      EXPECT_EQ(report->object_bytes, bytes);
    }
  }
}

TEST_F(FetchPrefix, PublishStoresWhatComesBeforeTheChunkAtFault) {
  const uint16_t infinite = 0x7c00;
  std::memcpy(memory_.data() + geometry_.element_offset(KvKind::key, 1, 3 * kTestChunk + 2, 0, 1),
              &infinite, 2);
  for (uint64_t in_flight : {uint64_t{0}, uint64_t{1} << 40}) {
    SetUpStore();
    PublishOptions options = publish_options(Tier::int8);
    options.max_bytes_in_flight = in_flight;
    size_t done = 0;
    options.progress = [&](size_t now, size_t) { done = now; };
    const auto report = publish_prefix(*store_, namespace_, tokens_, source(), options);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(done, 3u);
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(store_->stat(name(i, "int8")).ok(), i < 3) << i;
  }
}

TEST_F(FetchPrefix, PublishReplacesWhatIsNoChunk) {
  publish(*store_);
  const std::vector<std::byte> junk(1000, std::byte{7});
  ASSERT_TRUE(store_->put(name(0), junk).ok());
  ASSERT_TRUE(store_->put(name(1), {}).ok());
  auto foreign = get_object(*store_, name(3), UINT64_MAX);
  ASSERT_TRUE(foreign.ok());
  ASSERT_TRUE(store_->put(name(2), *foreign).ok());
  auto cut = get_object(*store_, name(4), UINT64_MAX);
  ASSERT_TRUE(cut.ok());
  cut->pop_back();
  ASSERT_TRUE(store_->put(name(4), *cut).ok());
  const auto report = publish_prefix(*store_, namespace_, tokens_, source(), publish_options());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->written, 4u);
  Target target = make_target();
  const auto fetched = fetch_prefix(*store_, namespace_, tokens_, target.target(), fetch_options());
  EXPECT_EQ(fetched->tokens_restored, 5 * kTestChunk);
  expect_restored(target, 5 * kTestChunk);
}

TEST_F(FetchPrefix, PipelineGivesTheSameBytesWhateverIsInFlight) {
  publish(*store_);
  for (size_t in_flight : {1, 2, 3, 100}) {
    FetchOptions options = fetch_options();
    options.max_chunks_in_flight = in_flight;
    Target target = make_target();
    const auto report = fetch_prefix(*store_, namespace_, tokens_, target.target(), options);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->tokens_restored, 5 * kTestChunk);
    expect_restored(target, 5 * kTestChunk);
  }
}

TEST_F(FetchPrefix, ConcurrentFetchesAndPublishers) {
  publish(*store_);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      Target target = make_target();
      const auto report =
          fetch_prefix(*store_, namespace_, tokens_, target.target(), fetch_options());
      ASSERT_TRUE(report.ok());
      EXPECT_EQ(report->tokens_restored, 5 * kTestChunk);
      expect_restored(target, 5 * kTestChunk);
    });
  }
  threads.emplace_back([&] {
    PublishOptions replace = publish_options();
    replace.replace = true;
    EXPECT_TRUE(publish_prefix(*store_, namespace_, tokens_, source(), replace).ok());
  });
}

TEST_F(FetchPrefix, StopsWhenAsked) {
  publish(*store_);
  std::stop_source stop;
  FetchOptions options = fetch_options();
  options.stop = stop.get_token();
  options.progress = [&](size_t done, size_t total) {
    EXPECT_EQ(total, 5u);
    if (done == 2) stop.request_stop();
  };
  Target target = make_target();
  const auto report = fetch_prefix(*store_, namespace_, tokens_, target.target(), options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->tokens_restored, 2 * kTestChunk);
  ASSERT_TRUE(report->stopped_by.has_value());
  EXPECT_EQ(report->stopped_by->code, ErrorCode::cancelled);
  expect_restored(target, 2 * kTestChunk);
}

TEST_F(FetchPrefix, WrongCallsAreErrors) {
  publish(*store_);
  Target target = make_target();
  FetchOptions options = fetch_options();
  options.max_chunks_in_flight = 0;
  const auto invalid = [](const auto& result) {
    return !result.ok() && result.error().code == ErrorCode::invalid_argument;
  };
  EXPECT_TRUE(invalid(fetch_prefix(*store_, namespace_, tokens_, target.target(), options)));
  options = fetch_options();
  options.chunk_tokens = 0;
  EXPECT_TRUE(invalid(fetch_prefix(*store_, namespace_, tokens_, target.target(), options)));
  options = fetch_options();
  options.rendition = "best";
  EXPECT_TRUE(invalid(fetch_prefix(*store_, namespace_, tokens_, target.target(), options)));
  target.geometry.tokens = kTestChunk;
  EXPECT_TRUE(
      invalid(fetch_prefix(*store_, namespace_, tokens_, target.target(), fetch_options())));
  Target small = make_target();
  small.memory.pop_back();
  EXPECT_TRUE(invalid(fetch_prefix(*store_, namespace_, tokens_, small.target(), fetch_options())));
  EXPECT_TRUE(invalid(
      fetch_prefix(*store_, namespace_, tokens_, {target.memory, nullptr}, fetch_options())));
  PublishOptions publish = publish_options();
  publish.chunk_tokens = 0;
  EXPECT_TRUE(invalid(publish_prefix(*store_, namespace_, tokens_, source(), publish)));
  KvGeometry half = geometry_;
  half.tokens = kTestChunk;
  EXPECT_TRUE(
      invalid(publish_prefix(*store_, namespace_, tokens_, {memory_, &half}, publish_options())));
  EXPECT_TRUE(invalid(match_prefix(*store_, namespace_, tokens_, "exact", 0)));
}

}  // namespace
}  // namespace kvcodec
