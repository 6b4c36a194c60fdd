// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <queue>
#include <random>
#include <vector>

#include "kvcodec/scheduler.h"

// An engine in simulated time around the scheduler: a link that carries one object after another, a
// decoder, and a GPU that computes one request after another.
namespace kvcodec::scheduler_sim {

struct SimRequest {
  double arrival = 0;
  size_t chunks = 0;            // that can be fetched
  double compute_whole = 0;     // seconds of the GPU with nothing restored
  double compute_restored = 0;  // with everything restored
  uint32_t document = 0;        // requests of one share its chunks
};
enum class Mode : uint8_t {
  queue,    // waiting for KV is apart from running
  fcfs,     // the GPU serves in order of arrival, and waits for the KV of whose turn it is
  instant,  // as `queue`, but KV is there at once
};
struct SimSettings {
  SchedulerOptions scheduler;
  uint64_t chunk_bytes = 1 << 20;
  double link_bytes_per_second = 1e9;
  double decode_seconds = 0.01;  // a chunk
};
struct SimResult {
  std::vector<double> first_token;  // by request: from arrival until it was computed
  size_t transfers = 0;
};

inline Digest chunk_of(uint32_t document, size_t chunk) {
  const uint64_t name[2] = {document, chunk};
  return sha256(std::as_bytes(std::span(name)));
}

inline SimResult simulate(const std::vector<SimRequest>& requests, Mode mode,
                          const SimSettings& settings) {
  enum class What : uint8_t { arrival, transfer, decode, computed, wake };
  struct Event {
    double at;
    uint64_t order;  // equal times: as they were made
    What what;
    uint64_t id;
    Digest key;
    size_t chunk;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  std::priority_queue<Event> events;
  uint64_t order = 0;
  const auto later = [&](double at, What what, uint64_t id, const Digest& key = {},
                         size_t chunk = 0) {
    events.push({at, order++, what, id, key, chunk});
  };
  FetchScheduler scheduler(settings.scheduler);
  SimResult result;
  result.first_token.resize(requests.size());
  std::vector<size_t> restored(requests.size(), SIZE_MAX);  // runnable, with so many chunks
  for (size_t i = 0; i < requests.size(); ++i) later(requests[i].arrival, What::arrival, i);
  double link_free = 0;
  bool computing = false;
  size_t next_in_order = 0;
  std::deque<size_t> ready;
  while (!events.empty()) {
    const Event event = events.top();
    events.pop();
    const double now = event.at;
    switch (event.what) {
      case What::arrival: {
        KvRequest request;
        request.id = event.id;
        request.memory_bytes = 1;
        if (mode != Mode::instant)
          for (size_t c = 0; c < requests[event.id].chunks; ++c)
            request.chunks.push_back(
                {chunk_of(requests[event.id].document, c), settings.chunk_bytes});
        if (!scheduler.submit(request, now).ok()) std::abort();
        break;
      }
      case What::transfer: scheduler.transfer_done(event.key, TransferEnd::arrived, now); break;
      case What::decode: scheduler.decode_done(event.id, event.chunk, true, now); break;
      case What::computed:
        computing = false;
        result.first_token[event.id] = now - requests[event.id].arrival;
        scheduler.finished(event.id, now);
        break;
      case What::wake: break;
    }
    for (const SchedulerAction& action : scheduler.poll(now)) {
      if (const auto* transfer = std::get_if<StartTransfer>(&action)) {
        ++result.transfers;
        link_free = std::max(link_free, now) +
                    static_cast<double>(transfer->bytes) / settings.link_bytes_per_second;
        later(link_free, What::transfer, 0, transfer->key);
      } else if (const auto* decode = std::get_if<StartDecode>(&action)) {
        later(now + settings.decode_seconds, What::decode, decode->request, {}, decode->chunk);
      }
    }
    if (std::isfinite(scheduler.next_wake()) && scheduler.next_wake() > now)
      later(scheduler.next_wake(), What::wake, 0);
    while (const auto runnable = scheduler.pop_runnable()) {
      restored[runnable->id] =
          mode == Mode::instant ? requests[runnable->id].chunks : runnable->chunks_restored;
      if (mode != Mode::fcfs) ready.push_back(runnable->id);
    }
    if (mode == Mode::fcfs && ready.empty() && next_in_order < requests.size() &&
        restored[next_in_order] != SIZE_MAX)
      ready.push_back(next_in_order);
    if (computing || ready.empty()) continue;
    const size_t id = ready.front();
    ready.pop_front();
    if (mode == Mode::fcfs) ++next_in_order;
    computing = true;
    const SimRequest& request = requests[id];
    const double share = request.chunks == 0 ? 0
                                             : static_cast<double>(restored[id]) /
                                                   static_cast<double>(request.chunks);
    later(now + request.compute_whole + share * (request.compute_restored - request.compute_whole),
          What::computed, id);
  }
  return result;
}

// Every `reuse_every`th request has a long prefix that can be fetched; the others are short.
inline std::vector<SimRequest> make_load(size_t count, double seconds_between, size_t reuse_every,
                                         size_t chunks, uint32_t seed) {
  std::vector<SimRequest> requests;
  std::mt19937 random(seed);
  std::exponential_distribution<> gap(1 / seconds_between);
  double at = 0;
  for (size_t i = 0; i < count; ++i) {
    at += gap(random);
    SimRequest request;
    request.arrival = at;
    request.compute_whole = 0.02;
    if (reuse_every > 0 && i % reuse_every == 0) {
      request.chunks = chunks;
      request.compute_whole = 0.05 * static_cast<double>(chunks);
      request.compute_restored = 0.0025;
      request.document = static_cast<uint32_t>(random() % 50);
    }
    requests.push_back(request);
  }
  return requests;
}

// Of the requests that fetch nothing.
inline double p99(const std::vector<SimRequest>& requests, const SimResult& result) {
  std::vector<double> times;
  for (size_t i = 0; i < requests.size(); ++i)
    if (requests[i].chunks == 0) times.push_back(result.first_token[i]);
  std::sort(times.begin(), times.end());
  return times[times.size() * 99 / 100];
}

}  // namespace kvcodec::scheduler_sim
