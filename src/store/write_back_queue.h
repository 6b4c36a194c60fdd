// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kvcodec/store.h"

namespace kvcodec {

// Puts objects into a store later, by threads of its own, again until it succeeds. An object's
// versions arrive in order, though some may be passed over for the newest. Thread-safe.
class WriteBackQueue {
 public:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;

  // Borrows `store`; keeps at most `max_bytes` of objects.
  WriteBackQueue(Store& store, uint64_t max_bytes);
  // Drops what was not written.
  ~WriteBackQueue();
  WriteBackQueue(const WriteBackQueue&) = delete;
  WriteBackQueue& operator=(const WriteBackQueue&) = delete;

  // Waits while there is no room. An object that is larger alone waits for an empty queue.
  void push(std::string_view name, std::span<const std::byte> bytes);
  // What was pushed last and is not written yet; null where there is none.
  Bytes find(std::string_view name);
  // Waits while it is being written, and forgets it. False where there was none.
  bool cancel(std::string_view name);
  std::vector<ObjectStat> list(std::string_view prefix);
  Status flush(std::chrono::milliseconds timeout);

 private:
  struct Entry {
    Bytes bytes;
    std::chrono::system_clock::time_point put_at;
    uint64_t version = 0;
    bool in_flight = false;
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  void run(const std::stop_token& stop);
  // With the lock: an entry to write, none where there is nothing to do now.
  Entries::iterator next();
  void forget(Entries::iterator entry);

  Store& store_;
  const uint64_t max_bytes_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  Entries entries_;
  std::deque<std::string> order_;  // names to write; some may be there no longer, or twice
  uint64_t bytes_ = 0, versions_ = 0;
  std::optional<Error> last_error_;
  std::vector<std::jthread> writers_;  // last: they use all of the above
};

}  // namespace kvcodec
