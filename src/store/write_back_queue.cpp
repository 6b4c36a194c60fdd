// SPDX-License-Identifier: Apache-2.0
#include "store/write_back_queue.h"

#include <algorithm>

#include "base/error.h"

namespace kvcodec {
namespace {

constexpr int kWriters = 4;
constexpr std::chrono::milliseconds kFirstPause{50}, kLongestPause{5000};

}  // namespace

WriteBackQueue::WriteBackQueue(Store& store, uint64_t max_bytes)
    : store_(store), max_bytes_(max_bytes) {
  for (int i = 0; i < kWriters; ++i) {
    writers_.emplace_back([this](const std::stop_token& stop) { run(stop); });
  }
}

WriteBackQueue::~WriteBackQueue() {
  for (std::jthread& writer : writers_) writer.request_stop();
  changed_.notify_all();
  writers_.clear();
}

void WriteBackQueue::push(std::string_view name, std::span<const std::byte> bytes) {
  auto copy = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    const auto old = entries_.find(name);
    const uint64_t replaced = old == entries_.end() ? 0 : old->second.bytes->size();
    const uint64_t others = bytes_ - replaced;
    return others == 0 || (others <= max_bytes_ && copy->size() <= max_bytes_ - others);
  });
  Entry& entry = entries_[std::string(name)];
  bytes_ += copy->size() - (entry.bytes == nullptr ? 0 : entry.bytes->size());
  entry.bytes = std::move(copy);
  entry.put_at = std::chrono::system_clock::now();
  entry.version = ++versions_;
  order_.emplace_back(name);
  changed_.notify_all();
}

WriteBackQueue::Bytes WriteBackQueue::find(std::string_view name) {
  const std::lock_guard guard(mutex_);
  const auto entry = entries_.find(name);
  return entry == entries_.end() ? nullptr : entry->second.bytes;
}

bool WriteBackQueue::cancel(std::string_view name) {
  std::unique_lock lock(mutex_);
  bool found = false;
  for (;;) {
    const auto entry = entries_.find(name);
    if (entry == entries_.end()) return found;
    found = true;
    if (!entry->second.in_flight) {
      forget(entry);
      return true;
    }
    changed_.wait(lock);
  }
}

std::vector<ObjectStat> WriteBackQueue::list(std::string_view prefix) {
  const std::lock_guard guard(mutex_);
  std::vector<ObjectStat> stats;
  for (auto entry = entries_.lower_bound(prefix);
       entry != entries_.end() && entry->first.starts_with(prefix); ++entry) {
    stats.push_back({entry->first, entry->second.bytes->size(), entry->second.put_at});
  }
  return stats;
}

Status WriteBackQueue::flush(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, timeout, [&] { return entries_.empty(); })) return ok_status();
  return make_error(
      ErrorCode::unavailable, "{} objects, {} bytes, are not written below yet; the last error: {}",
      entries_.size(), bytes_, last_error_ ? last_error_->message : "none, it is slow");
}

void WriteBackQueue::forget(Entries::iterator entry) {
  bytes_ -= entry->second.bytes->size();
  entries_.erase(entry);
  changed_.notify_all();
}

WriteBackQueue::Entries::iterator WriteBackQueue::next() {
  for (auto name = order_.begin(); name != order_.end();) {
    const auto entry = entries_.find(*name);
    if (entry == entries_.end()) {
      name = order_.erase(name);
    } else if (entry->second.in_flight) {
      ++name;  // its version before this one is being written
    } else {
      order_.erase(name);
      return entry;
    }
  }
  return entries_.end();
}

void WriteBackQueue::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  auto pause = kFirstPause;
  while (!stop.stop_requested()) {
    const auto entry = next();
    if (entry == entries_.end()) {
      changed_.wait(lock, stop, [&] {
        return std::any_of(order_.begin(), order_.end(), [&](const std::string& name) {
          const auto at = entries_.find(name);
          return at != entries_.end() && !at->second.in_flight;
        });
      });
      continue;
    }
    // Entries in flight are not erased, so `entry` stays good.
    entry->second.in_flight = true;
    const Bytes bytes = entry->second.bytes;
    const uint64_t version = entry->second.version;
    lock.unlock();
    const Status written = store_.put(entry->first, *bytes);
    lock.lock();
    entry->second.in_flight = false;
    changed_.notify_all();
    if (written.ok()) {
      pause = kFirstPause;
      if (entry->second.version == version) forget(entry);
      continue;
    }
    last_error_ = written.error();
    order_.push_back(entry->first);
    changed_.wait_for(lock, stop, pause, [] { return false; });
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace kvcodec
