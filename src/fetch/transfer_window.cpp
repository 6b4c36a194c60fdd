// SPDX-License-Identifier: Apache-2.0
#include "fetch/transfer_window.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace kvcodec {
namespace {

// Parts of about this long show soon when the link changes, and cost few requests.
constexpr double kPartSeconds = 0.05;
constexpr uint64_t kLeastPart = 64 << 10, kLargestPart = 8 << 20;

}  // namespace

TransferWindow::TransferWindow(Store& store, const WindowOptions& options, size_t chunks, Plan plan,
                               const Observers* observers)
    : store_(store),
      options_(options),
      chunks_(chunks),
      plan_(std::move(plan)),
      observers_(observers),
      trace_offset_(observers != nullptr && observers->trace != nullptr ? observers->trace->now()
                                                                        : 0) {}

void TransferWindow::start() {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < options_.transfers; ++i) spawn();
}

// Called with the mutex held, as all private functions but work() and run().
void TransferWindow::spawn() {
  Worker& worker = workers_.emplace_back();
  // The thread may outlive everybody else's interest in the window.
  worker.thread =
      std::thread([self = shared_from_this(), &worker]() mutable { self->work(worker); });
}

std::vector<LeftThread> TransferWindow::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  work_.notify_all();
  arrival_.notify_all();
  std::vector<LeftThread> left, ending;
  for (Worker& worker : workers_)
    (worker.part != 0 ? left : ending).push_back({std::move(worker.thread), worker.ended});
  lock.unlock();
  for (LeftThread& own : ending) own.thread.join();
  return left;
}

TransferWindow::Totals TransferWindow::totals() {
  const std::lock_guard lock(mutex_);
  return totals_;
}

double TransferWindow::bytes_per_second() {
  const std::lock_guard lock(mutex_);
  return link_rate();
}

double TransferWindow::link_rate() const {
  const double measured = link_.bytes_per_second(watch_.seconds());
  return measured > 0 ? measured : options_.assumed_bytes_per_second;
}

uint64_t TransferWindow::part_bytes() const {
  const auto wanted = static_cast<uint64_t>(link_rate() * kPartSeconds);
  return std::clamp(wanted, kLeastPart, kLargestPart);
}

void TransferWindow::work(Worker& self) {
  std::unique_lock lock(mutex_);
  while (!closed_ && !self.left) {
    check_stalls();
    auto job = next_job();
    if (!job) {
      // What stalls is looked for even where nobody else wakes this thread.
      work_.wait_for(lock, std::chrono::milliseconds(100));
      continue;
    }
    self.part = job->part.id;
    lock.unlock();
    std::vector<std::byte> whole;
    Result<size_t> got = run(*job, whole);
    lock.lock();
    self.part = 0;
    if (!closed_) land(*job, std::move(got), std::move(whole));
  }
  *self.ended = true;
}

// Nothing could catch an exception in this thread.
Result<size_t> TransferWindow::run(const Job& job, std::vector<std::byte>& whole) const {
  try {
    if (!job.whole)
      return store_.get(job.name, std::span(*job.object).subspan(job.part.offset, job.part.bytes),
                        job.part.offset);
    KVCODEC_TRY(whole, get_object(store_, job.name, options_.max_object_bytes));
    return whole.size();
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::out_of_memory, "{}: no memory for the object", job.name);
  }
}

std::optional<TransferWindow::Job> TransferWindow::next_job() {
  for (Flight& flight : window_) {
    if (flight.error || flight.ready) continue;
    reconsider(flight);
    if (auto job = issue(flight)) return job;
  }
  while (admit_next())
    if (auto job = issue(window_.back())) return job;
  return std::nullopt;
}

std::optional<TransferWindow::Job> TransferWindow::issue(Flight& flight) {
  if (flight.error || flight.ready) return std::nullopt;
  Part part;
  const bool whole = flight.wanted.bytes == 0;
  if (!flight.again.empty()) {
    part = flight.again.back();
    flight.again.pop_back();
  } else if (whole) {
    if (flight.issued > 0) return std::nullopt;
    flight.issued = 1;
  } else {
    const uint64_t rest = flight.wanted.bytes - flight.issued;
    if (rest == 0) return std::nullopt;
    const uint64_t usual = part_bytes();
    part.offset = flight.issued;
    part.bytes = rest < usual + usual / 2 ? rest : usual;
    flight.issued += part.bytes;
  }
  part.id = next_part_++;
  part.began = watch_.seconds();
  part.allowed = allowed_seconds(part.bytes);
  flight.under_way.push_back(part);
  link_.begin(part.began);
  return Job{flight.chunk, flight.wanted.name, flight.object, part, whole};
}

bool TransferWindow::admit_next() {
  if (end_ || next_ == chunks_) return false;
  if (window_.size() >= options_.max_chunks) return false;
  Flight flight;
  flight.chunk = next_;
  if (!plan_into(flight)) return false;
  // Backpressure: what is held is decoded before more is asked for.
  if (!window_.empty() && bytes_held_ + flight.wanted.bytes > options_.max_bytes) return false;
  bytes_held_ += flight.wanted.bytes;
  flight.object = std::make_shared<std::vector<std::byte>>(flight.wanted.bytes);
  window_.push_back(std::move(flight));
  ++next_;
  return true;
}

// Asks what to get for a chunk. False: not now, or never (end_).
bool TransferWindow::plan_into(Flight& flight) {
  auto planned = plan_({flight.chunk, flight.failed, std::nullopt, 0, load_before(flight.chunk)});
  if (!planned.ok()) {
    if (flight.attempts == 0) end_ = std::move(planned.error());
    arrival_.notify_all();
    return false;
  }
  if (!*planned) return false;
  flight.wanted = **std::move(planned);
  flight.began = watch_.seconds();
  return true;
}

// The link may have become so slow that another rendition arrives sooner than the rest of this.
void TransferWindow::reconsider(Flight& flight) {
  const uint64_t left = flight.wanted.bytes - flight.issued;
  if (flight.wanted.bytes == 0 || left == 0 || flight.issued == 0 || flight.hedges > 0) return;
  const auto planned = plan_(
      {flight.chunk, flight.failed, flight.wanted.rendition, left, load_before(flight.chunk)});
  if (!planned.ok() || !*planned || (*planned)->rendition == flight.wanted.rendition) return;
  if ((*planned)->bytes >= left) return;
  log(LogLevel::info, "fetch.switch",
      {{"chunk", std::to_string(flight.chunk)}, {"to", (*planned)->name}});
  ++totals_.switches;
  totals_.wasted_bytes += flight.landed;
  for (size_t i = 0; i < flight.under_way.size(); ++i) link_.end(watch_.seconds());
  bytes_held_ += (*planned)->bytes - flight.wanted.bytes;
  Flight fresh;
  fresh.chunk = flight.chunk;
  fresh.failed = flight.failed;
  fresh.attempts = flight.attempts;
  fresh.wanted = **planned;
  fresh.object = std::make_shared<std::vector<std::byte>>(fresh.wanted.bytes);
  fresh.began = watch_.seconds();
  flight = std::move(fresh);
}

PipelineLoad TransferWindow::load_before(size_t chunk) const {
  PipelineLoad load;
  load.bytes_per_second = link_rate();
  load.chunks_after = chunks_ - chunk - 1;
  for (const Flight& flight : window_) {
    if (flight.chunk >= chunk) break;
    load.decode_backlog += flight.wanted.decode_seconds;
    if (flight.ready || flight.error) continue;
    load.bytes_under_way += flight.wanted.bytes - std::min(flight.wanted.bytes, flight.landed);
  }
  return load;
}

void TransferWindow::land(const Job& job, Result<size_t> got, std::vector<std::byte> whole) {
  const double now = watch_.seconds();
  totals_.seconds += now - job.part.began;
  const uint64_t bytes = got.ok() ? *got : 0;
  totals_.bytes += bytes;
  link_.deliver(now, bytes);
  const auto at = std::find_if(window_.begin(), window_.end(),
                               [&](const Flight& f) { return f.chunk == job.chunk; });
  const auto is_part = [&](const Part& part) { return part.id == job.part.id; };
  const bool wanted =
      at != window_.end() && std::any_of(at->under_way.begin(), at->under_way.end(), is_part);
  if (!wanted) {  // given up before
    totals_.wasted_bytes += bytes;
    return;
  }
  link_.end(now);
  Flight& flight = *at;
  std::erase_if(flight.under_way, is_part);
  if (observers_ != nullptr && observers_->trace != nullptr)
    observers_->trace->span("transfer", "chunk " + std::to_string(job.chunk),
                            trace_offset_ + job.part.began, trace_offset_ + now,
                            {{"object", job.name}, {"bytes", std::to_string(bytes)}});
  if (!got.ok()) return fault(flight, got.error(), got.error().code == ErrorCode::unavailable);
  if (job.whole) {
    *flight.object = std::move(whole);
    bytes_held_ += bytes;
    flight.wanted.bytes = flight.issued = flight.landed = bytes;
    flight.ready = true;
  } else if (bytes != job.part.bytes) {
    return fault(
        flight,
        make_error(ErrorCode::corrupt, "object '{}' at offset {}: expected {} bytes, found {}",
                   job.name, job.part.offset, job.part.bytes, bytes),
        false);
  } else {
    flight.landed += bytes;
    flight.arrived.emplace_back(job.part.offset, bytes);
    flight.ready = flight.landed == flight.wanted.bytes;
  }
  if (flight.ready) arrival_.notify_all();
  work_.notify_one();
}

void TransferWindow::log(LogLevel level, std::string_view event, Labels fields) const {
  if (observers_ != nullptr && observers_->log) observers_->log({level, event, std::move(fields)});
}

}  // namespace kvcodec
