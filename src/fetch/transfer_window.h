// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/stopwatch.h"
#include "kvcodec/observe.h"
#include "kvcodec/planner.h"
#include "kvcodec/store.h"

namespace kvcodec {

struct WindowOptions {
  size_t transfers = 4;    // gets under way
  size_t max_chunks = 8;   // planned and not yet restored
  uint64_t max_bytes = 0;  // of their objects; one chunk is always let in
  uint64_t max_object_bytes = 0;
  double stall_seconds = 2;  // a get that lasts longer, and longer than it should, is given up
  int max_attempts = 3;      // at one chunk
  double assumed_bytes_per_second = 0;  // before the link is measured; 0: not known
};

// What to get for a chunk.
struct Wanted {
  size_t rendition = 0;
  std::string name;
  uint64_t bytes = 0;  // in parts; 0: not known, in one piece
  double decode_seconds = 0;
};
// What the planner is asked.
struct PlanQuestion {
  size_t chunk = 0;
  uint32_t failed = 0;  // renditions of this chunk that were tried in vain, as bits
  // The rendition that is under way, and how much of it has not been asked for yet.
  std::optional<size_t> current;
  uint64_t current_bytes_left = 0;
  PipelineLoad load;
};
// What to get; nothing: wait for the link to be known. An error ends the fetch before the chunk.
using Plan = std::function<Result<std::optional<Wanted>>(const PlanQuestion&)>;

// A thread that was inside a store when it was no longer wanted.
struct LeftThread {
  std::thread thread;
  std::shared_ptr<std::atomic<bool>> ended;
};

// The chunks between the store and the decoder: plans them in their order, moves their objects in
// parts, several at once, the oldest chunk's first, and hands them out in order. Bounded in chunks
// and bytes. A get that stalls is given up, and what it was for is asked for again; its thread is
// left behind until the store lets it go. Thread-safe; `store` is borrowed, by left threads too.
class TransferWindow : public std::enable_shared_from_this<TransferWindow> {
 public:
  struct Arrived {
    size_t chunk = 0, rendition = 0;
    std::shared_ptr<const std::vector<std::byte>> object;
  };
  struct Totals {
    uint64_t bytes = 0, wasted_bytes = 0;
    double seconds = 0;  // of all gets added up
    size_t hedges = 0, retries = 0, switches = 0;
  };

  // plan() is called by any thread, one call at a time, and not after close().
  TransferWindow(Store& store, const WindowOptions& options, size_t chunks, Plan plan,
                 const Observers* observers);
  void start();
  // Waits for the next chunk in order, `seconds` at most, then takes those that are there while
  // more(taken) says so. None: the time is over, all chunks were handed out, or error() says why
  // the next one does not come.
  std::vector<Arrived> take(double seconds,
                            const std::function<bool(const std::vector<Arrived>&)>& more);
  // The chunk after those that are done does not come, or the whole stopped here.
  std::optional<Error> error();
  // The first `restored` of the chunks that were taken are restored; their memory is free.
  void done(size_t restored);
  // The next chunk is faulty as it came: another rendition is tried. False: there is none.
  bool try_another(const Error& why);
  void wake();  // take() looks at the time again
  // Ends it. Threads that are inside the store are returned, to be joined when they can be.
  std::vector<LeftThread> close();
  Totals totals();
  double bytes_per_second();
  double now() const { return watch_.seconds(); }

 private:
  struct Part {
    uint64_t id = 0, offset = 0, bytes = 0;
    double began = 0, allowed = 0;  // seconds until it counts as stalled
  };
  struct Flight {  // a chunk in the window
    size_t chunk = 0;
    Wanted wanted;
    std::shared_ptr<std::vector<std::byte>> object;
    uint64_t issued = 0, landed = 0;
    std::vector<Part> under_way;
    std::vector<Part> again;                             // to be asked for once more
    std::vector<std::pair<uint64_t, uint64_t>> arrived;  // offset and bytes
    uint32_t failed = 0;
    int attempts = 0, hedges = 0;
    bool ready = false, taken = false;
    std::optional<Error> error;
    double began = 0;
  };
  struct Job {
    size_t chunk = 0;
    std::string name;
    std::shared_ptr<std::vector<std::byte>> object;
    Part part;
    bool whole = false;
  };
  struct Worker {
    std::thread thread;
    uint64_t part = 0;  // under way; 0: none
    bool left = false;  // given up
    std::shared_ptr<std::atomic<bool>> ended = std::make_shared<std::atomic<bool>>(false);
  };

  void work(Worker& self);
  std::optional<Job> next_job();
  std::optional<Job> issue(Flight& flight);
  bool admit_next();
  bool plan_into(Flight& flight);
  void reconsider(Flight& flight);
  PipelineLoad load_before(size_t chunk) const;
  Result<size_t> run(const Job& job, std::vector<std::byte>& whole) const;
  void land(const Job& job, Result<size_t> got, std::vector<std::byte> whole);
  // `again`: the same rendition may be tried once more.
  void fault(Flight& flight, const Error& why, bool again);
  void check_stalls();
  void hedge(Flight& flight, const Part& stalled);
  void give_up(uint64_t part);
  void spawn();
  double allowed_seconds(uint64_t bytes) const;
  uint64_t part_bytes() const;
  double link_rate() const;
  void log(LogLevel level, std::string_view event, Labels fields) const;

  Store& store_;
  const WindowOptions options_;
  const size_t chunks_;
  const Plan plan_;
  const Observers* const observers_;
  const Stopwatch watch_;
  const double trace_offset_;  // of the trace's clock

  std::mutex mutex_;
  std::condition_variable work_, arrival_;
  std::deque<Flight> window_;  // chunks from the first that is not restored
  size_t next_ = 0;            // to be planned
  std::optional<Error> end_;   // of planning
  uint64_t bytes_held_ = 0, next_part_ = 1;
  std::deque<Worker> workers_;  // references stay valid
  BandwidthEstimator link_;
  Totals totals_;
  bool closed_ = false;
};

}  // namespace kvcodec
