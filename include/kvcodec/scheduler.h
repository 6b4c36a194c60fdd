// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "kvcodec/key.h"
#include "kvcodec/result.h"

// Which fetch goes first where many requests share a link, a decoder and memory. A state machine
// without clock, threads or I/O: its owner tells what happened and when, and does what poll() says.
// The same calls give the same answers, in an engine and in a simulator.
namespace kvcodec {

using RequestId = uint64_t;

struct SchedulerOptions {
  uint64_t memory_bytes = 0;  // of KV, of all requests that are admitted and not finished
  // Of those, requests that wait for KV hold at most this much, so that they never keep the memory
  // from requests that could run.
  uint64_t waiting_memory_bytes = 0;
  uint64_t object_bytes = uint64_t{256} << 20;  // fetched and not yet decoded; one is always let in
  uint64_t prefetched_bytes = uint64_t{64} << 20;  // of object_bytes, kept for nobody yet
  size_t transfers = 4;                            // at once
  size_t decodes = 1;                              // at once
  // No request waits longer for KV: then it computes what is missing. So every request's deadline
  // is bounded, and earliest-deadline-first starves nobody.
  double max_wait_seconds = 30;
  double negative_seconds = 10;  // how long a chunk that was not there is not asked for again
  // A request that does not fit in memory is overtaken by this many that do, then by none.
  uint32_t max_overtakes = 16;
};

struct WantedChunk {
  Digest key;
  uint64_t bytes = 0;  // of its object
};
struct KvRequest {
  RequestId id = 0;
  // When its KV should be there; what is later than max_wait_seconds from its submission means
  // that.
  double deadline = std::numeric_limits<double>::infinity();
  uint32_t tenant = 0;
  double weight = 1;  // of the tenant's share of link and decoder; the last one given counts
  uint64_t memory_bytes = 0;        // of its KV while it is admitted
  std::vector<WantedChunk> chunks;  // leading ones to fetch, in their order; none: it can run
};

struct StartTransfer {
  Digest key;
  uint64_t bytes = 0;
  bool prefetch = false;
};
struct CancelTransfer {  // nobody wants it any more; transfer_done() still follows
  Digest key;
};
struct StartDecode {
  RequestId request = 0;
  size_t chunk = 0;
};
struct DropObject {  // the object of a transfer that was done is not needed any more
  Digest key;
};
using SchedulerAction = std::variant<StartTransfer, CancelTransfer, StartDecode, DropObject>;

enum class TransferEnd : uint8_t { arrived, missing, failed };

// Not thread-safe. Times are seconds and must not go back. Each call costs about the number of
// requests that wait for KV.
class FetchScheduler {
 public:
  explicit FetchScheduler(const SchedulerOptions& options);

  // invalid_argument where the id is known, the weight not above 0, or the memory more than there
  // is.
  Status submit(const KvRequest& request, double now);
  // Gets chunks while the link has nothing else to do.
  void prefetch(std::span<const WantedChunk> chunks);
  // Also of one that runs. Unknown ids are ignored: it may have finished meanwhile.
  void cancel(RequestId id, double now);

  void transfer_done(const Digest& key, TransferEnd end, double now);
  // `ok`: the chunk is restored. Else it and what follows is computed.
  void decode_done(RequestId id, size_t chunk, bool ok, double now);
  // A request that ran has ended; its memory is free.
  void finished(RequestId id, double now);

  // What to start and stop now. Call it after every event, and at next_wake().
  std::vector<SchedulerAction> poll(double now);
  // When something will be due that no event announces: a deadline. Infinity: nothing.
  double next_wake() const;

  // The next request to run, with how many of its leading chunks are restored. First come, first
  // served among those that can run; one that waits for KV is not among them.
  struct Runnable {
    RequestId id = 0;
    size_t chunks_restored = 0;
  };
  std::optional<Runnable> pop_runnable();

  size_t waiting() const { return waiting_.size(); }  // for memory or KV
  size_t runnable() const { return runnable_.size(); }
  uint64_t memory_in_use() const { return memory_; }
  uint64_t objects_held() const { return object_bytes_; }

 private:
  struct Waiting {
    KvRequest request;
    double due = 0;      // the deadline that counts
    uint64_t order = 0;  // of submission
    bool admitted = false;
    size_t usable = 0;  // leading chunks not known to be missing
    size_t asked = 0;   // leading chunks whose transfers were asked for
    size_t restored = 0;
    bool decoding = false;
    bool cancelled = false;  // goes when its decoding has ended
  };
  struct Object {
    enum class State : uint8_t { coming, here } state = State::coming;
    uint64_t bytes = 0;
    size_t wanted = 0;  // by how many requests
    bool prefetched = false;
    bool cancelling = false;
    uint64_t order = 0;
  };
  struct Tenant {
    double weight = 1, link = 0, decoder = 0;  // service so far, by weight
  };

  bool before(const Waiting& a, const Waiting& b, double Tenant::*service) const;
  void admit();
  bool settle(double now);  // requests whose fetch has ended
  std::optional<size_t> next_for_link() const;
  std::optional<size_t> next_for_decoder() const;
  // True: a request's chain was found to be shorter.
  bool start_transfers(double now, std::vector<SchedulerAction>& actions);
  void start_prefetches(double now, std::vector<SchedulerAction>& actions);
  void start_decodes(std::vector<SchedulerAction>& actions);
  void tidy(double now, std::vector<SchedulerAction>& actions);
  bool wanted_later(const Digest& key) const;
  void release_object(const Digest& key);
  void shorten(Waiting& waiting, size_t usable);
  bool is_missing(const Digest& key, double now) const;
  void charge(uint32_t tenant, double Tenant::*service, uint64_t bytes);

  const SchedulerOptions options_;
  std::vector<Waiting> waiting_;  // in order of submission
  std::deque<Runnable> runnable_;
  std::map<RequestId, uint64_t> running_;  // memory of those runnable or popped
  std::map<Digest, Object> objects_;
  std::map<Digest, double> missing_until_;
  std::map<uint32_t, Tenant> tenants_;
  std::deque<WantedChunk> prefetches_;
  uint64_t memory_ = 0, waiting_memory_ = 0, object_bytes_ = 0, order_ = 0;
  size_t transfers_ = 0, decodes_ = 0;
  uint32_t overtakes_ = 0;
};

}  // namespace kvcodec
