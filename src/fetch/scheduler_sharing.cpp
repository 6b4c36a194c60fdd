// SPDX-License-Identifier: Apache-2.0
// How the scheduler shares the link and the decoder.
#include <algorithm>

#include "kvcodec/scheduler.h"

namespace kvcodec {

// Tenants by the service they had, by weight; within one, the earliest deadline.
bool FetchScheduler::before(const Waiting& a, const Waiting& b, double Tenant::*service) const {
  if (a.request.tenant != b.request.tenant) {
    const double first = tenants_.at(a.request.tenant).*service;
    const double second = tenants_.at(b.request.tenant).*service;
    if (first != second) return first < second;
  }
  return std::pair(a.due, a.order) < std::pair(b.due, b.order);
}

void FetchScheduler::charge(uint32_t tenant, double Tenant::*service, uint64_t bytes) {
  Tenant& charged = tenants_[tenant];
  charged.*service += static_cast<double>(bytes) / charged.weight;
}

std::optional<size_t> FetchScheduler::next_for_link() const {
  std::optional<size_t> best;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const Waiting& w = waiting_[i];
    if (!w.admitted || w.cancelled || w.asked >= w.usable) continue;
    const auto object = objects_.find(w.request.chunks[w.asked].key);
    // One that is being cancelled can be asked for again when it has ended.
    if (object != objects_.end() && object->second.cancelling) continue;
    if (!best || before(w, waiting_[*best], &Tenant::link)) best = i;
  }
  return best;
}

bool FetchScheduler::start_transfers(double now, std::vector<SchedulerAction>& actions) {
  bool shortened = false;
  while (const auto next = next_for_link()) {
    Waiting& w = waiting_[*next];
    const WantedChunk& chunk = w.request.chunks[w.asked];
    if (is_missing(chunk.key, now)) {  // another request found out meanwhile
      shorten(w, w.asked);
      shortened = true;
      continue;
    }
    const auto found = objects_.find(chunk.key);
    if (found != objects_.end()) {  // got once for all who want it
      ++found->second.wanted;
      found->second.prefetched = false;
      ++w.asked;
      continue;
    }
    if (transfers_ >= options_.transfers) break;
    if (object_bytes_ > 0 && object_bytes_ + chunk.bytes > options_.object_bytes) break;
    objects_[chunk.key] = {Object::State::coming, chunk.bytes, 1, false, false, order_++};
    object_bytes_ += chunk.bytes;
    ++transfers_;
    ++w.asked;
    charge(w.request.tenant, &Tenant::link, chunk.bytes);
    actions.emplace_back(StartTransfer{chunk.key, chunk.bytes, false});
  }
  return shortened;
}

// By a request whose turn on the link has not come.
bool FetchScheduler::wanted_later(const Digest& key) const {
  for (const Waiting& w : waiting_) {
    if (!w.admitted || w.cancelled) continue;
    for (size_t i = w.asked; i < w.usable; ++i)
      if (w.request.chunks[i].key == key) return true;
  }
  return false;
}

// Only where the link would stand idle.
void FetchScheduler::start_prefetches(double now, std::vector<SchedulerAction>& actions) {
  if (next_for_link()) return;
  uint64_t kept = 0;
  for (const auto& [key, object] : objects_)
    if (object.prefetched) kept += object.bytes;
  while (!prefetches_.empty() && transfers_ < options_.transfers) {
    const WantedChunk chunk = prefetches_.front();
    const bool needless = objects_.contains(chunk.key) || is_missing(chunk.key, now) ||
                          chunk.bytes > options_.prefetched_bytes;
    if (!needless && (kept + chunk.bytes > options_.prefetched_bytes ||
                      object_bytes_ + chunk.bytes > options_.object_bytes))
      return;
    prefetches_.pop_front();
    if (needless) continue;
    objects_[chunk.key] = {Object::State::coming, chunk.bytes, 0, true, false, order_++};
    object_bytes_ += chunk.bytes;
    kept += chunk.bytes;
    ++transfers_;
    actions.emplace_back(StartTransfer{chunk.key, chunk.bytes, true});
  }
}

std::optional<size_t> FetchScheduler::next_for_decoder() const {
  std::optional<size_t> best;
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const Waiting& w = waiting_[i];
    if (!w.admitted || w.cancelled || w.decoding || w.restored >= std::min(w.usable, w.asked))
      continue;
    const auto object = objects_.find(w.request.chunks[w.restored].key);
    if (object == objects_.end() || object->second.state != Object::State::here) continue;
    if (!best || before(w, waiting_[*best], &Tenant::decoder)) best = i;
  }
  return best;
}

void FetchScheduler::start_decodes(std::vector<SchedulerAction>& actions) {
  while (decodes_ < options_.decodes) {
    const auto next = next_for_decoder();
    if (!next) return;
    Waiting& w = waiting_[*next];
    w.decoding = true;
    ++decodes_;
    charge(w.request.tenant, &Tenant::decoder, w.request.chunks[w.restored].bytes);
    actions.emplace_back(StartDecode{w.request.id, w.restored});
  }
}

// Objects that nobody wants; of prefetched ones the oldest, where demand needs their room.
void FetchScheduler::tidy(double now, std::vector<SchedulerAction>& actions) {
  const bool crowded = next_for_link().has_value() && transfers_ < options_.transfers;
  std::optional<Digest> oldest;
  for (auto it = objects_.begin(); it != objects_.end();) {
    auto& [key, object] = *it;
    if (object.wanted > 0) {
      ++it;
    } else if (object.prefetched || (!object.cancelling && wanted_later(key))) {
      object.prefetched = true;  // kept while there is room
      const bool here = object.state == Object::State::here;
      if (here && (!oldest || object.order < objects_.at(*oldest).order)) oldest = key;
      ++it;
    } else if (object.state == Object::State::coming) {
      if (!object.cancelling) actions.emplace_back(CancelTransfer{key});
      object.cancelling = true;
      ++it;
    } else {
      actions.emplace_back(DropObject{key});
      object_bytes_ -= object.bytes;
      it = objects_.erase(it);
    }
  }
  if (!crowded || !oldest) return;
  // Whose chain is found shorter by this is settled at the next poll.
  actions.emplace_back(DropObject{*oldest});
  object_bytes_ -= objects_.at(*oldest).bytes;
  objects_.erase(*oldest);
  start_transfers(now, actions);
}

}  // namespace kvcodec
