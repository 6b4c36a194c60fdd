// SPDX-License-Identifier: Apache-2.0
// Each rule of the scheduler by itself, then an engine in simulated time.
#include <gtest/gtest.h>

#include "scheduler_sim.h"

namespace kvcodec {
namespace {

using scheduler_sim::chunk_of;

SchedulerOptions some_options() {
  SchedulerOptions options;
  options.memory_bytes = options.waiting_memory_bytes = 1000;
  options.object_bytes = 100;
  options.prefetched_bytes = 20;
  options.transfers = 2;
  options.decodes = 1;
  return options;
}

KvRequest request(RequestId id, uint32_t document, size_t chunks, double deadline = 1e9,
                  uint32_t tenant = 0) {
  KvRequest made;
  made.id = id;
  made.deadline = deadline;
  made.tenant = tenant;
  made.memory_bytes = 10;
  for (size_t i = 0; i < chunks; ++i) made.chunks.push_back({chunk_of(document, i), 10});
  return made;
}

template <typename T>
std::vector<T> of(const std::vector<SchedulerAction>& actions) {
  std::vector<T> found;
  for (const SchedulerAction& action : actions)
    if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
  return found;
}

TEST(Scheduler, WithoutChunksARequestRunsAtOnce) {
  FetchScheduler scheduler(some_options());
  ASSERT_TRUE(scheduler.submit(request(1, 0, 3), 0).ok());
  ASSERT_TRUE(scheduler.submit(request(2, 0, 0), 0).ok());
  scheduler.poll(0);
  EXPECT_EQ(scheduler.pop_runnable()->id, 2u);
  EXPECT_FALSE(scheduler.pop_runnable().has_value()) << "the other waits for its KV";
  EXPECT_EQ(scheduler.waiting(), 1u);
}

TEST(Scheduler, ChunksAreGotAndDecodedInOrder) {
  FetchScheduler scheduler(some_options());
  ASSERT_TRUE(scheduler.submit(request(1, 0, 3), 0).ok());
  auto transfers = of<StartTransfer>(scheduler.poll(0));
  ASSERT_EQ(transfers.size(), 2u) << "as many as may be at once";
  EXPECT_EQ(transfers[0].key, chunk_of(0, 0));
  EXPECT_EQ(transfers[1].key, chunk_of(0, 1));
  scheduler.transfer_done(chunk_of(0, 1), TransferEnd::arrived, 1);
  auto actions = scheduler.poll(1);
  EXPECT_TRUE(of<StartDecode>(actions).empty()) << "the first is not there";
  EXPECT_EQ(of<StartTransfer>(actions).size(), 1u);
  scheduler.transfer_done(chunk_of(0, 0), TransferEnd::arrived, 2);
  EXPECT_EQ(of<StartDecode>(scheduler.poll(2))[0].chunk, 0u);
  scheduler.decode_done(1, 0, true, 3);
  actions = scheduler.poll(3);
  EXPECT_EQ(of<StartDecode>(actions)[0].chunk, 1u);
  EXPECT_EQ(of<DropObject>(actions)[0].key, chunk_of(0, 0));
  scheduler.decode_done(1, 1, true, 4);
  scheduler.transfer_done(chunk_of(0, 2), TransferEnd::arrived, 5);
  scheduler.poll(5);
  scheduler.decode_done(1, 2, true, 6);
  scheduler.poll(6);
  const auto runnable = scheduler.pop_runnable();
  ASSERT_TRUE(runnable.has_value());
  EXPECT_EQ(runnable->chunks_restored, 3u);
  EXPECT_EQ(scheduler.objects_held(), 0u);
  EXPECT_EQ(scheduler.memory_in_use(), 10u);
  scheduler.finished(1, 7);
  EXPECT_EQ(scheduler.memory_in_use(), 0u);
}

TEST(Scheduler, TheEarliestDeadlineGoesFirst) {
  SchedulerOptions options = some_options();
  options.transfers = 1;
  FetchScheduler scheduler(options);
  ASSERT_TRUE(scheduler.submit(request(1, 1, 2, 20), 0).ok());
  ASSERT_TRUE(scheduler.submit(request(2, 2, 2, 5), 0).ok());
  ASSERT_TRUE(scheduler.submit(request(3, 3, 2, 10), 0).ok());
  std::vector<Digest> got;
  for (int i = 0; i < 6; ++i) {
    const auto transfers = of<StartTransfer>(scheduler.poll(0));
    ASSERT_EQ(transfers.size(), 1u);
    got.push_back(transfers[0].key);
    scheduler.transfer_done(got.back(), TransferEnd::arrived, 0);
  }
  EXPECT_EQ(got, (std::vector<Digest>{chunk_of(2, 0), chunk_of(2, 1), chunk_of(3, 0),
                                      chunk_of(3, 1), chunk_of(1, 0), chunk_of(1, 1)}));
}

// Urgent requests keep coming; one without a deadline is served nevertheless, in bounded time.
TEST(Scheduler, NobodyStarves) {
  SchedulerOptions options = some_options();
  options.transfers = 1;
  options.max_wait_seconds = 30;
  FetchScheduler scheduler(options);
  ASSERT_TRUE(scheduler.submit(request(1, 1, 1), 0).ok());
  std::optional<Digest> on_link;
  double served = -1;
  for (int second = 0; second < 60 && served < 0; ++second) {
    const auto id = static_cast<RequestId>(100 + second);
    ASSERT_TRUE(
        scheduler.submit(request(id, static_cast<uint32_t>(id), 1, second + 20), second).ok());
    if (on_link) scheduler.transfer_done(*on_link, TransferEnd::arrived, second);
    on_link.reset();
    for (int step = 0; step < 3; ++step)
      for (const SchedulerAction& action : scheduler.poll(second)) {
        if (const auto* transfer = std::get_if<StartTransfer>(&action)) on_link = transfer->key;
        if (const auto* decode = std::get_if<StartDecode>(&action))
          scheduler.decode_done(decode->request, decode->chunk, true, second);
      }
    while (const auto runnable = scheduler.pop_runnable()) {
      if (runnable->id == 1) served = second;
      scheduler.finished(runnable->id, second);
    }
  }
  EXPECT_GE(served, 0);
  EXPECT_LE(served, 31);
}

TEST(Scheduler, TenantsShareTheLinkByWeight) {
  SchedulerOptions options = some_options();
  options.transfers = 1;
  options.object_bytes = 1 << 20;
  FetchScheduler scheduler(options);
  // The first has all the early deadlines.
  KvRequest greedy = request(1, 1, 60, 1, 1), patient = request(2, 2, 60, 25, 2);
  patient.weight = 3;
  ASSERT_TRUE(scheduler.submit(greedy, 0).ok());
  ASSERT_TRUE(scheduler.submit(patient, 0).ok());
  size_t first = 0, second = 0;
  for (int i = 0; i < 40; ++i) {
    const auto transfers = of<StartTransfer>(scheduler.poll(0));
    ASSERT_EQ(transfers.size(), 1u);
    const bool is_first = transfers[0].key == chunk_of(1, first);
    (is_first ? first : second) += 1;
    scheduler.transfer_done(transfers[0].key, TransferEnd::arrived, 0);
  }
  EXPECT_EQ(first, 10u);
  EXPECT_EQ(second, 30u);
}

TEST(Scheduler, OneChunkIsGotOnceForAll) {
  FetchScheduler scheduler(some_options());
  for (RequestId id = 1; id <= 3; ++id) ASSERT_TRUE(scheduler.submit(request(id, 7, 1), 0).ok());
  EXPECT_EQ(of<StartTransfer>(scheduler.poll(0)).size(), 1u);
  scheduler.transfer_done(chunk_of(7, 0), TransferEnd::arrived, 1);
  size_t dropped = 0;
  for (RequestId id = 1; id <= 3; ++id) {
    const auto actions = scheduler.poll(1);
    dropped += of<DropObject>(actions).size();
    const auto decodes = of<StartDecode>(actions);
    ASSERT_EQ(decodes.size(), 1u);
    EXPECT_EQ(decodes[0].request, id);
    EXPECT_EQ(dropped, 0u) << "still wanted";
    scheduler.decode_done(id, 0, true, 1);
  }
  EXPECT_EQ(of<DropObject>(scheduler.poll(2)).size(), 1u);
  EXPECT_EQ(scheduler.runnable(), 3u);
}

// Also where those who come later have not asked for it yet when the first is done with it.
TEST(Scheduler, OneChunkIsGotOnceForThoseBehind) {
  SchedulerOptions options = some_options();
  options.transfers = 1;
  FetchScheduler scheduler(options);
  for (RequestId id = 1; id <= 4; ++id) ASSERT_TRUE(scheduler.submit(request(id, 7, 3), 0).ok());
  size_t transfers = 0, decodes = 0;
  for (double now = 0; now < 50; ++now)
    for (const SchedulerAction& action : scheduler.poll(now)) {
      if (const auto* transfer = std::get_if<StartTransfer>(&action)) {
        ++transfers;
        scheduler.transfer_done(transfer->key, TransferEnd::arrived, now);
      } else if (const auto* decode = std::get_if<StartDecode>(&action)) {
        ++decodes;
        scheduler.decode_done(decode->request, decode->chunk, true, now);
      }
    }
  EXPECT_EQ(transfers, 3u);
  EXPECT_EQ(decodes, 12u);
  EXPECT_EQ(scheduler.runnable(), 4u);
  EXPECT_EQ(scheduler.objects_held(), 0u);
}

TEST(Scheduler, MemoryAdmitsByDeadlineAndIsNotOvertakenForEver) {
  SchedulerOptions options = some_options();
  options.memory_bytes = options.waiting_memory_bytes = 100;
  options.max_overtakes = 3;
  FetchScheduler scheduler(options);
  KvRequest small = request(1, 1, 1);
  small.memory_bytes = 30;
  ASSERT_TRUE(scheduler.submit(small, 0).ok());
  scheduler.poll(0);
  KvRequest large = request(2, 2, 1, 5);
  large.memory_bytes = 90;
  ASSERT_TRUE(scheduler.submit(large, 0).ok());
  size_t overtook = 0;
  for (RequestId id = 10; id < 20; ++id) {
    KvRequest other = request(id, static_cast<uint32_t>(id), 1, 20);
    other.memory_bytes = 10;
    ASSERT_TRUE(scheduler.submit(other, 0).ok());
    scheduler.poll(0);
    overtook = (scheduler.memory_in_use() - 30) / 10;
  }
  EXPECT_EQ(overtook, 3u) << "then the large one is next";
  for (RequestId id = 1; id < 20; ++id) {
    if (id != 2) scheduler.cancel(id, 1);
  }
  scheduler.poll(1);
  EXPECT_EQ(scheduler.memory_in_use(), 90u);
}

// Requests that wait for KV leave memory for those that can run.
TEST(Scheduler, WaitingRequestsDoNotHoldAllMemory) {
  SchedulerOptions options = some_options();
  options.memory_bytes = 100;
  options.waiting_memory_bytes = 50;
  FetchScheduler scheduler(options);
  for (RequestId id = 1; id <= 10; ++id)
    ASSERT_TRUE(scheduler.submit(request(id, static_cast<uint32_t>(id), 1), 0).ok());
  scheduler.poll(0);
  EXPECT_EQ(scheduler.memory_in_use(), 50u);
  ASSERT_TRUE(scheduler.submit(request(99, 0, 0), 1).ok());
  scheduler.poll(1);
  EXPECT_EQ(scheduler.pop_runnable()->id, 99u);
}

TEST(Scheduler, ObjectsAreBounded) {
  SchedulerOptions options = some_options();
  options.object_bytes = 30;
  options.transfers = 10;
  FetchScheduler scheduler(options);
  ASSERT_TRUE(scheduler.submit(request(1, 1, 8), 0).ok());
  EXPECT_EQ(of<StartTransfer>(scheduler.poll(0)).size(), 3u);
  EXPECT_EQ(scheduler.objects_held(), 30u);
  scheduler.transfer_done(chunk_of(1, 0), TransferEnd::arrived, 1);
  EXPECT_TRUE(of<StartTransfer>(scheduler.poll(1)).empty());
  scheduler.decode_done(1, 0, true, 2);
  scheduler.poll(2);  // its room is free
  EXPECT_EQ(of<StartTransfer>(scheduler.poll(2)).size(), 1u);
  // One object larger than the bound is let in alone.
  FetchScheduler large(options);
  KvRequest big = request(1, 1, 1);
  big.chunks[0].bytes = 1000;
  ASSERT_TRUE(large.submit(big, 0).ok());
  EXPECT_EQ(of<StartTransfer>(large.poll(0)).size(), 1u);
}

TEST(Scheduler, WhatIsMissingIsRememberedForAWhile) {
  FetchScheduler scheduler(some_options());
  ASSERT_TRUE(scheduler.submit(request(1, 1, 3), 0).ok());
  ASSERT_TRUE(scheduler.submit(request(2, 1, 3), 0).ok());
  scheduler.poll(0);
  scheduler.transfer_done(chunk_of(1, 0), TransferEnd::missing, 1);
  auto actions = scheduler.poll(1);
  EXPECT_EQ(of<CancelTransfer>(actions).size(), 1u) << "what follows is of no use";
  EXPECT_EQ(scheduler.pop_runnable()->chunks_restored, 0u);
  EXPECT_EQ(scheduler.pop_runnable()->id, 2u);
  scheduler.transfer_done(chunk_of(1, 1), TransferEnd::failed, 1);
  ASSERT_TRUE(scheduler.submit(request(3, 1, 3), 2).ok());
  EXPECT_TRUE(of<StartTransfer>(scheduler.poll(2)).empty()) << "not asked for again";
  EXPECT_EQ(scheduler.pop_runnable()->id, 3u);
  ASSERT_TRUE(scheduler.submit(request(4, 1, 3), 20).ok());
  EXPECT_EQ(of<StartTransfer>(scheduler.poll(20)).size(), 2u) << "someone may have stored it";
}

TEST(Scheduler, AFailedTransferIsNotHeldAgainstTheChunk) {
  FetchScheduler scheduler(some_options());
  ASSERT_TRUE(scheduler.submit(request(1, 1, 1), 0).ok());
  scheduler.poll(0);
  scheduler.transfer_done(chunk_of(1, 0), TransferEnd::failed, 1);
  scheduler.poll(1);
  EXPECT_EQ(scheduler.pop_runnable()->chunks_restored, 0u);
  ASSERT_TRUE(scheduler.submit(request(2, 1, 1), 1).ok());
  EXPECT_EQ(of<StartTransfer>(scheduler.poll(1)).size(), 1u);
}

TEST(Scheduler, AFaultyChunkEndsTheChain) {
  FetchScheduler scheduler(some_options());
  ASSERT_TRUE(scheduler.submit(request(1, 1, 3), 0).ok());
  scheduler.poll(0);
  for (size_t i = 0; i < 2; ++i) scheduler.transfer_done(chunk_of(1, i), TransferEnd::arrived, 1);
  scheduler.poll(1);
  scheduler.decode_done(1, 0, true, 2);
  scheduler.poll(2);
  scheduler.decode_done(1, 1, false, 3);
  scheduler.poll(3);
  EXPECT_EQ(scheduler.pop_runnable()->chunks_restored, 1u);
}

TEST(Scheduler, TheDeadlineEndsTheWaiting) {
  FetchScheduler scheduler(some_options());
  ASSERT_TRUE(scheduler.submit(request(1, 1, 2, 5), 0).ok());
  scheduler.poll(0);
  EXPECT_EQ(scheduler.next_wake(), 5);
  scheduler.poll(4.9);
  EXPECT_EQ(scheduler.runnable(), 0u);
  const auto actions = scheduler.poll(5);
  EXPECT_EQ(of<CancelTransfer>(actions).size(), 2u);
  EXPECT_EQ(scheduler.pop_runnable()->chunks_restored, 0u);
  // Also of one that was never admitted.
  SchedulerOptions options = some_options();
  options.memory_bytes = options.waiting_memory_bytes = 10;
  FetchScheduler full(options);
  ASSERT_TRUE(full.submit(request(1, 1, 1, 100), 0).ok());
  ASSERT_TRUE(full.submit(request(2, 2, 1, 200), 0).ok());
  full.poll(0);
  full.poll(40);
  EXPECT_EQ(full.pop_runnable()->id, 1u);
  full.finished(1, 41);
  full.poll(41);
  EXPECT_EQ(full.pop_runnable()->id, 2u);
}

TEST(Scheduler, CancelledRequestsLeaveNothingBehind) {
  FetchScheduler scheduler(some_options());
  ASSERT_TRUE(scheduler.submit(request(1, 1, 3), 0).ok());
  ASSERT_TRUE(scheduler.submit(request(2, 1, 1), 0).ok());
  scheduler.poll(0);
  scheduler.transfer_done(chunk_of(1, 0), TransferEnd::arrived, 1);
  scheduler.poll(1);  // decodes chunk 0 of request 1
  scheduler.cancel(1, 1);
  auto actions = scheduler.poll(1);
  EXPECT_EQ(scheduler.waiting(), 2u) << "the decoder writes to its memory";
  scheduler.decode_done(1, 0, true, 2);
  actions = scheduler.poll(2);
  EXPECT_EQ(scheduler.waiting(), 1u);
  EXPECT_EQ(of<CancelTransfer>(actions).size(), 2u);
  EXPECT_EQ(of<StartDecode>(actions)[0].request, 2u) << "chunk 0 is still there for the other";
  for (size_t i = 1; i < 3; ++i) scheduler.transfer_done(chunk_of(1, i), TransferEnd::failed, 3);
  scheduler.decode_done(2, 0, true, 3);
  scheduler.poll(3);
  EXPECT_EQ(scheduler.objects_held(), 0u);
  scheduler.cancel(2, 4);
  EXPECT_EQ(scheduler.memory_in_use(), 0u);
  EXPECT_FALSE(scheduler.pop_runnable().has_value());
}

TEST(Scheduler, PrefetchTakesWhatTheLinkLeaves) {
  FetchScheduler scheduler(some_options());
  const std::vector<WantedChunk> hint = {
      {chunk_of(9, 0), 10}, {chunk_of(9, 1), 10}, {chunk_of(9, 2), 10}};
  ASSERT_TRUE(scheduler.submit(request(1, 1, 3), 0).ok());
  scheduler.prefetch(hint);
  for (const StartTransfer& transfer : of<StartTransfer>(scheduler.poll(0)))
    EXPECT_FALSE(transfer.prefetch);
  scheduler.transfer_done(chunk_of(1, 0), TransferEnd::arrived, 1);
  EXPECT_FALSE(of<StartTransfer>(scheduler.poll(1)).at(0).prefetch);
  scheduler.transfer_done(chunk_of(1, 1), TransferEnd::arrived, 2);
  EXPECT_TRUE(of<StartTransfer>(scheduler.poll(2)).at(0).prefetch);
  scheduler.transfer_done(chunk_of(9, 0), TransferEnd::arrived, 3);
  scheduler.transfer_done(chunk_of(1, 2), TransferEnd::arrived, 3);
  EXPECT_EQ(of<StartTransfer>(scheduler.poll(3)).size(), 1u) << "20 bytes may be kept";
  scheduler.transfer_done(chunk_of(9, 1), TransferEnd::arrived, 4);
  // Who asks for it finds it there.
  ASSERT_TRUE(scheduler.submit(request(2, 9, 2), 5).ok());
  for (const StartTransfer& transfer : of<StartTransfer>(scheduler.poll(5)))
    EXPECT_EQ(transfer.key, chunk_of(9, 2));
}

TEST(Scheduler, WrongCallsAreErrors) {
  FetchScheduler scheduler(some_options());
  ASSERT_TRUE(scheduler.submit(request(1, 1, 1), 0).ok());
  EXPECT_FALSE(scheduler.submit(request(1, 1, 1), 0).ok());
  KvRequest large = request(2, 1, 1);
  large.memory_bytes = 1001;
  EXPECT_FALSE(scheduler.submit(large, 0).ok());
  KvRequest weightless = request(3, 1, 1);
  weightless.weight = 0;
  EXPECT_FALSE(scheduler.submit(weightless, 0).ok());
  scheduler.cancel(77, 0);
  scheduler.finished(77, 0);
  scheduler.transfer_done(chunk_of(77, 0), TransferEnd::arrived, 0);
  scheduler.decode_done(77, 0, true, 0);
  EXPECT_EQ(scheduler.waiting(), 1u);
}

TEST(SchedulerSimulation, FetchingNeighboursDoNotDelayOthers) {
  using namespace scheduler_sim;
  constexpr size_t kRequests = 20000;
  SimSettings settings;
  settings.scheduler.memory_bytes = 1 << 20;
  settings.scheduler.waiting_memory_bytes = 1 << 19;
  settings.link_bytes_per_second = 2e8;  // 32 chunks: 0.17 s on the link, 0.32 s in the decoder
  for (uint32_t seed : {1u, 2u}) {
    const auto load = make_load(kRequests, 0.05, 8, 32, seed);
    const double there = p99(load, simulate(load, Mode::instant, settings));
    const double fetched = p99(load, simulate(load, Mode::queue, settings));
    const double blocked = p99(load, simulate(load, Mode::fcfs, settings));
    EXPECT_LT(std::abs(fetched / there - 1), 0.02) << seed;
    EXPECT_GT(blocked, 1.5 * there) << "without the queue they are delayed";
  }
}

TEST(SchedulerSimulation, IsDeterministicAndServesEverybody) {
  using namespace scheduler_sim;
  SimSettings settings;
  settings.scheduler.memory_bytes = 40;
  settings.scheduler.waiting_memory_bytes = 20;
  const auto load = make_load(3000, 0.05, 3, 16, 5);
  const SimResult first = simulate(load, Mode::queue, settings);
  EXPECT_EQ(simulate(load, Mode::queue, settings).first_token, first.first_token);
  for (double seconds : first.first_token) EXPECT_GT(seconds, 0);
  // Requests of one document share transfers while they overlap.
  EXPECT_LE(first.transfers, 1000u * 16);
}

}  // namespace
}  // namespace kvcodec
