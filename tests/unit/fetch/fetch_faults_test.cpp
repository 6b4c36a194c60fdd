// SPDX-License-Identifier: Apache-2.0
// Whatever a store does, a fetch restores a prefix of right tokens and says why it ended.
#include <chrono>
#include <random>
#include <thread>

#include "fetch_fixture.h"
#include "store/faulty_store.h"

namespace kvcodec {
namespace {

class FetchFaults : public FetchFixture {
 protected:
  void SetUp() override {
    FetchFixture::SetUp();
    publish(*store_);
  }

  // Fetches through `plan`; returns the report after checking the target.
  FetchReport fetch(FaultPlan plan, FetchOptions options) {
    FaultyStore faulty(*store_, std::move(plan));
    Target target = make_target();
    auto report = fetch_prefix(faulty, namespace_, tokens_, target.target(), options);
    EXPECT_TRUE(report.ok());
    expect_restored(target, report->tokens_restored);
    return *std::move(report);
  }
  FetchReport fetch(FaultPlan plan) { return fetch(std::move(plan), fetch_options()); }
};

TEST_F(FetchFaults, EveryByteFlippedOfOneChunkIsRefused) {
  const auto stat = store_->stat(name(2));
  ASSERT_TRUE(stat.ok());
  for (uint64_t at = 0; at < stat->bytes; at += 1 + stat->bytes / 200) {
    const FetchReport report = fetch(flip_bits(name(2), at, std::byte{0x10}));
    ASSERT_EQ(report.tokens_restored, 2 * kTestChunk) << "byte " << at;
    ASSERT_TRUE(report.stopped_by.has_value());
    // A newer version is the one thing that a flipped bit may pass for.
    ASSERT_TRUE(report.stopped_by->code == ErrorCode::corrupt ||
                (report.stopped_by->code == ErrorCode::unsupported && at >= 8 && at < 10))
        << report.stopped_by->message;
    ASSERT_NE(report.stopped_by->message.find(name(2)), std::string::npos);
  }
}

TEST_F(FetchFaults, TruncatedObjects) {
  const auto stat = store_->stat(name(3));
  ASSERT_TRUE(stat.ok());
  for (uint64_t bytes :
       {uint64_t{0}, uint64_t{1}, uint64_t{23}, stat->bytes / 2, stat->bytes - 1}) {
    const FetchReport report = fetch(truncate_object(name(3), bytes));
    EXPECT_EQ(report.tokens_restored, 3 * kTestChunk);
    ASSERT_TRUE(report.stopped_by.has_value());
    EXPECT_EQ(report.stopped_by->code, ErrorCode::corrupt);
  }
}

TEST_F(FetchFaults, ErrorsOfTheStoreAreReported) {
  for (ErrorCode code : {ErrorCode::unavailable, ErrorCode::io, ErrorCode::not_found}) {
    FaultPlan plan = [this, code](const StoreCall& call) {
      Fault fault;
      if (call.op != StoreOp::put && call.name == name(1)) fault.error = Error{code, "injected"};
      return fault;
    };
    const FetchReport report = fetch(plan);
    EXPECT_EQ(report.tokens_restored, kTestChunk);
    ASSERT_TRUE(report.stopped_by.has_value());
    EXPECT_EQ(report.stopped_by->code, code);
  }
}

TEST_F(FetchFaults, SwappedChunksAreForeign) {
  auto other = get_object(*store_, name(4), UINT64_MAX);
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(store_->put(name(1), *other).ok());
  const FetchReport report = fetch({});
  EXPECT_EQ(report.tokens_restored, kTestChunk);
  ASSERT_TRUE(report.stopped_by.has_value());
  EXPECT_EQ(report.stopped_by->code, ErrorCode::corrupt);
}

TEST_F(FetchFaults, AnotherTierUnderTheNameIsRefused) {
  publish(*store_, Tier::int8);
  auto coarse = get_object(*store_, name(1, "int8"), UINT64_MAX);
  ASSERT_TRUE(coarse.ok());
  ASSERT_TRUE(store_->put(name(1), *coarse).ok());
  const FetchReport report = fetch({});
  EXPECT_EQ(report.tokens_restored, kTestChunk);
  ASSERT_TRUE(report.stopped_by.has_value());
  EXPECT_EQ(report.stopped_by->code, ErrorCode::corrupt);
}

TEST_F(FetchFaults, TooLargeObjectsAreNotFetched) {
  FetchOptions options = fetch_options();
  options.limits.max_object_bytes = 100;
  const FetchReport report = fetch({}, options);
  EXPECT_EQ(report.tokens_restored, 0u);
  ASSERT_TRUE(report.stopped_by.has_value());
  EXPECT_EQ(report.stopped_by->code, ErrorCode::corrupt);
}

TEST_F(FetchFaults, RandomDelaysGiveTheSameBytes) {
  std::mutex mutex;
  std::mt19937 random(3);
  for (int round = 0; round < 10; ++round) {
    FetchOptions options = fetch_options();
    options.max_chunks_in_flight = 1 + static_cast<size_t>(round) % 3;
    options.progress = [&](size_t, size_t) {
      std::unique_lock lock(mutex);
      const auto delay = std::chrono::microseconds(random() % 1500);
      lock.unlock();
      std::this_thread::sleep_for(delay);
    };
    const FetchReport report = fetch(
        [&](const StoreCall&) {
          std::unique_lock lock(mutex);
          const auto delay = std::chrono::microseconds(random() % 1500);
          lock.unlock();
          std::this_thread::sleep_for(delay);
          return Fault{};
        },
        options);
    EXPECT_EQ(report.tokens_restored, 5 * kTestChunk);
  }
}

TEST_F(FetchFaults, PublishReportsWhatTheStoreSays) {
  for (StoreOp op : {StoreOp::stat, StoreOp::put}) {
    ASSERT_TRUE(store_->remove(name(1)).ok());
    FaultyStore faulty(*store_, fail_calls(op, ErrorCode::unavailable, 0, 1));
    const auto report = publish_prefix(faulty, namespace_, tokens_, source(), publish_options());
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, ErrorCode::unavailable);
    publish(*store_);
  }
}

TEST_F(FetchFaults, AnObjectEvictedMidwayIsPublishedAgain) {
  FaultyStore faulty(*store_, fail_calls(StoreOp::get, ErrorCode::not_found, 0, 1));
  const auto report = publish_prefix(faulty, namespace_, tokens_, source(), publish_options());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->written, 1u);
}

}  // namespace
}  // namespace kvcodec
