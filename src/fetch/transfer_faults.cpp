// SPDX-License-Identifier: Apache-2.0
// What a window does when transfers fail or stall, and what it hands out.
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "fetch/transfer_window.h"

namespace kvcodec {
namespace {

// A get is late after this many times what the link would take.
constexpr double kLateFactor = 4;
constexpr int kMaxHedges = 1;

}  // namespace

double TransferWindow::allowed_seconds(uint64_t bytes) const {
  const double rate = link_rate();
  if (rate <= 0) return options_.stall_seconds;
  // Those before it on the link count too.
  const double usual = static_cast<double>(bytes) * static_cast<double>(options_.transfers) / rate;
  return std::max(options_.stall_seconds, kLateFactor * usual);
}

// Another rendition, or the same once more where the store may recover; else the chunk fails.
void TransferWindow::fault(Flight& flight, const Error& why, bool again) {
  for (size_t i = 0; i < flight.under_way.size(); ++i) link_.end(watch_.seconds());
  totals_.wasted_bytes += flight.landed;
  bytes_held_ -= flight.wanted.bytes;
  Flight fresh;
  fresh.chunk = flight.chunk;
  fresh.attempts = flight.attempts + 1;
  fresh.failed = flight.failed;
  fresh.hedges = flight.hedges;
  if (!again || flight.attempts > 0) fresh.failed |= 1u << flight.wanted.rendition;
  const Wanted before = flight.wanted;
  if (fresh.attempts < options_.max_attempts && plan_into(fresh)) {
    log(LogLevel::warning, "fetch.retry",
        {{"chunk", std::to_string(fresh.chunk)},
         {"failed", before.name},
         {"error", error_code_name(why.code)},
         {"next", fresh.wanted.name}});
    ++totals_.retries;
    bytes_held_ += fresh.wanted.bytes;
    fresh.object = std::make_shared<std::vector<std::byte>>(fresh.wanted.bytes);
    flight = std::move(fresh);
  } else {
    log(LogLevel::warning, "fetch.fault",
        {{"chunk", std::to_string(flight.chunk)},
         {"object", before.name},
         {"error", error_code_name(why.code)}});
    fresh.error = why;
    fresh.wanted.rendition = before.rendition;
    flight = std::move(fresh);
    arrival_.notify_all();
  }
  work_.notify_all();
}

void TransferWindow::check_stalls() {
  const double now = watch_.seconds();
  for (Flight& flight : window_) {
    for (const Part& part : flight.under_way) {
      if (now - part.began <= part.allowed) continue;
      const Part stalled = part;  // both change the flight
      if (flight.hedges >= kMaxHedges || flight.wanted.bytes == 0) {
        for (const Part& other : flight.under_way) give_up(other.id);
        return fault(
            flight,
            make_error(ErrorCode::unavailable, "object '{}' at offset {}: no answer in {:.1f} s",
                       flight.wanted.name, stalled.offset, now - stalled.began),
            false);
      }
      return hedge(flight, stalled);
    }
  }
}

// Leaves the stalled thread behind, with the buffer it writes to, and asks again.
void TransferWindow::hedge(Flight& flight, const Part& stalled) {
  log(LogLevel::warning, "fetch.hedge",
      {{"chunk", std::to_string(flight.chunk)},
       {"object", flight.wanted.name},
       {"offset", std::to_string(stalled.offset)}});
  ++flight.hedges;
  ++totals_.hedges;
  auto buffer = std::make_shared<std::vector<std::byte>>(flight.wanted.bytes);
  for (const auto& [offset, bytes] : flight.arrived)
    std::copy_n(flight.object->begin() + static_cast<ptrdiff_t>(offset), bytes,
                buffer->begin() + static_cast<ptrdiff_t>(offset));
  flight.object = std::move(buffer);
  for (const Part& part : flight.under_way) {
    link_.end(watch_.seconds());
    give_up(part.id);
    flight.again.push_back(part);
  }
  flight.under_way.clear();
  std::sort(flight.again.begin(), flight.again.end(),
            [](const Part& a, const Part& b) { return a.offset > b.offset; });
  work_.notify_all();
}

// The thread of this get is left behind, and another takes its place.
void TransferWindow::give_up(uint64_t part) {
  for (Worker& worker : workers_) {
    if (worker.part != part || worker.left) continue;
    worker.left = true;
    return spawn();
  }
}

std::vector<TransferWindow::Arrived> TransferWindow::take(
    double seconds, const std::function<bool(const std::vector<Arrived>&)>& more) {
  std::unique_lock lock(mutex_);
  const auto settled = [&] {
    return closed_ || (!window_.empty() && (window_.front().ready || window_.front().error)) ||
           (window_.empty() && (end_ || next_ == chunks_));
  };
  if (!settled()) arrival_.wait_for(lock, std::chrono::duration<double>(seconds));
  check_stalls();
  std::vector<Arrived> taken;
  for (Flight& flight : window_) {
    if (!flight.ready || flight.error) break;
    if (!taken.empty() && !more(taken)) break;
    taken.push_back({flight.chunk, flight.wanted.rendition, flight.object});
  }
  return taken;
}

std::optional<Error> TransferWindow::error() {
  const std::lock_guard lock(mutex_);
  if (!window_.empty()) return window_.front().error;
  return end_;
}

void TransferWindow::done(size_t restored) {
  const std::lock_guard lock(mutex_);
  for (; restored > 0; --restored) {
    bytes_held_ -= window_.front().wanted.bytes;
    window_.pop_front();
  }
  work_.notify_all();
}

bool TransferWindow::try_another(const Error& why) {
  const std::lock_guard lock(mutex_);
  fault(window_.front(), why, false);
  return !window_.front().error;
}

void TransferWindow::wake() {
  const std::lock_guard lock(mutex_);
  arrival_.notify_all();
}

}  // namespace kvcodec
