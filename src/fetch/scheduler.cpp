// SPDX-License-Identifier: Apache-2.0
#include "kvcodec/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace kvcodec {

FetchScheduler::FetchScheduler(const SchedulerOptions& options) : options_(options) {}

Status FetchScheduler::submit(const KvRequest& request, double now) {
  const bool known = running_.contains(request.id) ||
                     std::any_of(waiting_.begin(), waiting_.end(),
                                 [&](const Waiting& w) { return w.request.id == request.id; });
  if (known)
    return make_error(ErrorCode::invalid_argument, "scheduler: request {} is there already",
                      request.id);
  if (!(request.weight > 0))
    return make_error(ErrorCode::invalid_argument, "scheduler: request {}: weight {}", request.id,
                      request.weight);
  const uint64_t room = request.chunks.empty()
                            ? options_.memory_bytes
                            : std::min(options_.memory_bytes, options_.waiting_memory_bytes);
  if (request.memory_bytes > room)
    return make_error(ErrorCode::invalid_argument,
                      "scheduler: request {} needs {} bytes of memory, there are {}", request.id,
                      request.memory_bytes, room);
  // A tenant that was away has saved nothing up.
  const auto tenant = tenants_.try_emplace(request.tenant).first;
  tenant->second.weight = request.weight;
  const bool away = std::none_of(waiting_.begin(), waiting_.end(), [&](const Waiting& w) {
    return w.request.tenant == request.tenant;
  });
  if (away) {
    double link = std::numeric_limits<double>::infinity(), decoder = link;
    for (const Waiting& w : waiting_) {
      link = std::min(link, tenants_[w.request.tenant].link);
      decoder = std::min(decoder, tenants_[w.request.tenant].decoder);
    }
    if (!waiting_.empty()) {
      tenant->second.link = std::max(tenant->second.link, link);
      tenant->second.decoder = std::max(tenant->second.decoder, decoder);
    }
  }
  Waiting waiting;
  waiting.request = request;
  waiting.due = std::min(request.deadline, now + options_.max_wait_seconds);
  waiting.order = order_++;
  waiting.usable = request.chunks.size();
  for (size_t i = 0; i < waiting.usable; ++i)
    if (is_missing(request.chunks[i].key, now)) waiting.usable = i;
  waiting_.push_back(std::move(waiting));
  return ok_status();
}

void FetchScheduler::prefetch(std::span<const WantedChunk> chunks) {
  prefetches_.insert(prefetches_.end(), chunks.begin(), chunks.end());
}

void FetchScheduler::cancel(RequestId id, double now) {
  const auto running = running_.find(id);
  if (running != running_.end()) {
    std::erase_if(runnable_, [&](const Runnable& r) { return r.id == id; });
    return finished(id, now);
  }
  for (Waiting& waiting : waiting_)
    if (waiting.request.id == id) waiting.cancelled = true;
}

bool FetchScheduler::is_missing(const Digest& key, double now) const {
  const auto found = missing_until_.find(key);
  return found != missing_until_.end() && now < found->second;
}

void FetchScheduler::transfer_done(const Digest& key, TransferEnd end, double now) {
  const auto found = objects_.find(key);
  if (found == objects_.end() || found->second.state != Object::State::coming) return;
  --transfers_;
  Object& object = found->second;
  if (end == TransferEnd::arrived) {
    object.state = Object::State::here;
    object.cancelling = false;
    return;
  }
  if (end == TransferEnd::missing) {
    std::erase_if(missing_until_, [&](const auto& entry) { return entry.second <= now; });
    missing_until_[key] = now + options_.negative_seconds;
  }
  // Everybody who wants it computes from there on.
  for (Waiting& waiting : waiting_) {
    if (!waiting.admitted) continue;
    for (size_t i = waiting.restored; i < std::min(waiting.usable, waiting.asked); ++i)
      if (waiting.request.chunks[i].key == key) shorten(waiting, i);
  }
  object_bytes_ -= object.bytes;
  objects_.erase(key);
}

void FetchScheduler::decode_done(RequestId id, size_t chunk, bool ok, double) {
  for (Waiting& waiting : waiting_) {
    if (waiting.request.id != id || !waiting.decoding || waiting.restored != chunk) continue;
    waiting.decoding = false;
    --decodes_;
    if (ok) {
      release_object(waiting.request.chunks[chunk].key);
      ++waiting.restored;
    } else {
      shorten(waiting, chunk);
    }
    return;
  }
}

void FetchScheduler::finished(RequestId id, double) {
  const auto running = running_.find(id);
  if (running == running_.end()) return;
  memory_ -= running->second;
  running_.erase(running);
}

// Chunks from `usable` on are not fetched.
void FetchScheduler::shorten(Waiting& waiting, size_t usable) {
  for (size_t i = std::max(usable, waiting.restored); i < waiting.asked; ++i)
    release_object(waiting.request.chunks[i].key);
  waiting.usable = std::min(waiting.usable, usable);
  waiting.asked = std::min(waiting.asked, usable);
}

void FetchScheduler::release_object(const Digest& key) {
  const auto found = objects_.find(key);
  if (found != objects_.end() && found->second.wanted > 0) --found->second.wanted;
}

// Memory by deadline. Requests that can run come first, in their order.
void FetchScheduler::admit() {
  for (auto w = waiting_.begin(); w != waiting_.end();) {
    const bool runs = !w->admitted && !w->cancelled && w->usable == 0;
    if (runs && w->request.memory_bytes <= options_.memory_bytes - memory_) {
      memory_ += w->request.memory_bytes;
      running_[w->request.id] = w->request.memory_bytes;
      runnable_.push_back({w->request.id, 0});
      w = waiting_.erase(w);
    } else if (runs) {
      break;  // first come, first served: nobody who came later gets the memory before it
    } else {
      ++w;
    }
  }
  std::vector<Waiting*> queue;
  for (Waiting& w : waiting_)
    if (!w.admitted && !w.cancelled && w.usable > 0) queue.push_back(&w);
  std::stable_sort(queue.begin(), queue.end(),
                   [](const Waiting* a, const Waiting* b) { return a->due < b->due; });
  bool first_waits = false;
  for (Waiting* w : queue) {
    const uint64_t bytes = w->request.memory_bytes;
    const bool fits = bytes <= options_.memory_bytes - memory_ &&
                      bytes <= options_.waiting_memory_bytes - waiting_memory_;
    if (!fits) {
      if (!first_waits && overtakes_ >= options_.max_overtakes) return;
      first_waits = true;
      continue;
    }
    if (first_waits && ++overtakes_ > options_.max_overtakes) return;
    if (!first_waits) overtakes_ = 0;
    memory_ += bytes;
    waiting_memory_ += bytes;
    w->admitted = true;
  }
}

// Moves requests on whose fetch has ended. True: there was one.
bool FetchScheduler::settle(double now) {
  bool changed = false;
  for (auto w = waiting_.begin(); w != waiting_.end();) {
    if (!w->decoding && now >= w->due && w->restored < w->usable) {
      shorten(*w, w->restored);
      changed = true;
    }
    const bool over = w->cancelled || (w->admitted && w->restored >= w->usable);
    if (!over || w->decoding) {
      ++w;
      continue;
    }
    shorten(*w, w->restored);
    if (w->admitted) waiting_memory_ -= w->request.memory_bytes;
    if (w->cancelled) {
      if (w->admitted) memory_ -= w->request.memory_bytes;
    } else {
      running_[w->request.id] = w->request.memory_bytes;
      runnable_.push_back({w->request.id, w->restored});
    }
    w = waiting_.erase(w);
    changed = true;
  }
  return changed;
}

std::vector<SchedulerAction> FetchScheduler::poll(double now) {
  std::vector<SchedulerAction> actions;
  do {
    do admit();
    while (settle(now));
    start_decodes(actions);
  } while (start_transfers(now, actions));
  tidy(now, actions);
  start_prefetches(now, actions);
  return actions;
}

double FetchScheduler::next_wake() const {
  double wake = std::numeric_limits<double>::infinity();
  for (const Waiting& w : waiting_)
    if (!w.decoding && !w.cancelled && w.usable > 0) wake = std::min(wake, w.due);
  return wake;
}

std::optional<FetchScheduler::Runnable> FetchScheduler::pop_runnable() {
  if (runnable_.empty()) return std::nullopt;
  const Runnable next = runnable_.front();
  runnable_.pop_front();
  return next;
}

}  // namespace kvcodec
