// SPDX-License-Identifier: Apache-2.0
#include "store/tiered_store.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "store/store_name.h"

namespace kvcodec {
namespace {

bool is_missing(const Error& error) { return error.code == ErrorCode::not_found; }

// A range of an object that is in memory.
size_t copy_range(std::span<const std::byte> bytes, std::span<std::byte> out, uint64_t offset) {
  if (offset >= bytes.size() || out.empty()) return 0;
  const size_t n = std::min<size_t>(out.size(), bytes.size() - offset);
  std::memcpy(out.data(), bytes.data() + offset, n);
  return n;
}

}  // namespace

Result<std::unique_ptr<Store>> make_tiered_store(std::vector<std::unique_ptr<Store>> levels,
                                                 const TieredOptions& options) {
  if (levels.size() < 2) {
    return make_error(ErrorCode::invalid_argument,
                      "tiered store: expected at least two levels, found {}", levels.size());
  }
  return std::unique_ptr<Store>(std::make_unique<TieredStore>(std::move(levels), options));
}

TieredStore::TieredStore(std::vector<std::unique_ptr<Store>> levels, const TieredOptions& options)
    : options_(options), levels_(std::move(levels)) {
  for (size_t i = 0; i < levels_.size(); ++i) suspects_.push_back(std::make_unique<Suspects>());
  if (options_.write_back) {
    queue_ = std::make_unique<WriteBackQueue>(*levels_.back(), options_.queue_bytes);
  }
}

TieredStore::~TieredStore() {
  if (queue_ != nullptr) (void)queue_->flush(options_.flush_timeout);
}

TieredStore::Stripe& TieredStore::stripe_of(std::string_view name) {
  return stripes_[checksum64(std::as_bytes(std::span(name))) % kStripes];
}

bool TieredStore::is_suspect(size_t level, std::string_view name) {
  Suspects& suspects = *suspects_[level];
  const std::lock_guard guard(suspects.mutex);
  return suspects.all || suspects.names.contains(name);
}

void TieredStore::set_suspect(size_t level, std::string_view name, bool suspect) {
  Suspects& suspects = *suspects_[level];
  const std::lock_guard guard(suspects.mutex);
  if (!suspect) {
    if (const auto at = suspects.names.find(name); at != suspects.names.end()) {
      suspects.names.erase(at);
    }
  } else if (suspects.names.size() < kMaxSuspects) {
    suspects.names.emplace(name);
  } else {
    suspects.all = true;
  }
}

template <typename T, typename Answer>
Result<T> TieredStore::first_answer(std::string_view name, const Answer& answer) {
  std::optional<Error> failed;
  for (size_t level = 0; level < levels_.size(); ++level) {
    if (is_suspect(level, name)) continue;
    Result<T> found = answer(level);
    if (found.ok()) return found;
    if (is_missing(found.error()) || failed) continue;
    failed = make_error(found.error().code, "level {} of the tiered store: {}", level,
                        found.error().message);
  }
  if (failed) return *std::move(failed);
  return make_error(ErrorCode::not_found, "no object '{}' in the tiered store", name);
}

Result<size_t> TieredStore::get(std::string_view name, std::span<std::byte> out, uint64_t offset) {
  KVCODEC_CHECK(validate_name(name));
  if (queue_ != nullptr) {
    if (const auto bytes = queue_->find(name)) return copy_range(*bytes, out, offset);
  }
  return first_answer<size_t>(name, [&](size_t level) {
    return level == 0 ? levels_[0]->get(name, out, offset) : get_below(level, name, out, offset);
  });
}

Result<size_t> TieredStore::get_below(size_t level, std::string_view name, std::span<std::byte> out,
                                      uint64_t offset) {
  Store& store = *levels_[level];
  if (options_.promote_max_bytes == 0 || out.empty()) return store.get(name, out, offset);
  Stripe& stripe = stripe_of(name);
  // One of many who want it reads it; the others then find it above.
  const std::lock_guard guard(stripe.promoting);
  for (size_t above = 0; above < level; ++above) {
    if (is_suspect(above, name)) continue;
    auto found = levels_[above]->get(name, out, offset);
    if (found.ok()) return found;
  }
  const uint64_t changes = stripe.changes;
  if (offset == 0) {
    KVCODEC_TRY(const size_t n, store.get(name, out, 0));
    if (n < out.size() && n <= options_.promote_max_bytes) {
      promote(level, name, out.first(n), changes);
      return n;
    }
    if (n < out.size()) return n;
    const auto found = store.stat(name);
    if (!found.ok() || found->bytes > options_.promote_max_bytes) return n;
    if (found->bytes == n) {
      promote(level, name, out, changes);
      return n;
    }
  }
  KVCODEC_TRY(const ObjectStat found, store.stat(name));
  if (found.bytes > options_.promote_max_bytes) return store.get(name, out, offset);
  KVCODEC_TRY(const std::vector<std::byte> bytes,
              get_object(store, name, options_.promote_max_bytes));
  promote(level, name, bytes, changes);
  return copy_range(bytes, out, offset);
}

void TieredStore::promote(size_t level, std::string_view name, std::span<const std::byte> bytes,
                          uint64_t changes) {
  Stripe& stripe = stripe_of(name);
  const std::lock_guard guard(stripe.changing);
  if (stripe.changes != changes) return;  // it may have been replaced since it was read
  for (size_t above = 0; above < level; ++above) {
    // One that is down or too small does without.
    if (levels_[above]->put(name, bytes).ok()) set_suspect(above, name, false);
  }
}

void TieredStore::put_above(std::string_view name, std::span<const std::byte> bytes) {
  for (size_t level = last(); level-- > 0;) {
    bool clean = levels_[level]->put(name, bytes).ok();
    if (!clean) {
      const Status removed = levels_[level]->remove(name);
      clean = removed.ok() || is_missing(removed.error());
    }
    set_suspect(level, name, !clean);
  }
}

Status TieredStore::put(std::string_view name, std::span<const std::byte> bytes) {
  KVCODEC_CHECK(validate_name(name));
  Stripe& stripe = stripe_of(name);
  const std::lock_guard guard(stripe.changing);
  ++stripe.changes;
  if (queue_ != nullptr) {
    queue_->push(name, bytes);
  } else {
    const Status kept = levels_.back()->put(name, bytes);
    if (!kept.ok()) {
      return make_error(kept.error().code, "level {} of the tiered store: {}", last(),
                        kept.error().message);
    }
  }
  put_above(name, bytes);
  return ok_status();
}

Result<ObjectStat> TieredStore::stat(std::string_view name) {
  KVCODEC_CHECK(validate_name(name));
  if (queue_ != nullptr) {
    for (ObjectStat& waiting : queue_->list(name)) {
      if (waiting.name != name) continue;
      for (size_t level = 0; level < last(); ++level) {
        const auto above = levels_[level]->stat(name);
        if (above.ok()) waiting.last_used = std::max(waiting.last_used, above->last_used);
      }
      return std::move(waiting);
    }
  }
  return first_answer<ObjectStat>(name, [&](size_t level) { return levels_[level]->stat(name); });
}

Result<std::vector<ObjectStat>> TieredStore::list(std::string_view prefix) {
  // Each object as stat tells it: by the first level that has it. What waits is listed before the
  // levels are, or it could go to the last one unseen.
  std::map<std::string, ObjectStat> merged;
  const auto waiting = queue_ != nullptr ? queue_->list(prefix) : std::vector<ObjectStat>{};
  for (size_t level = 0; level < levels_.size(); ++level) {
    auto listed = levels_[level]->list(prefix);
    if (!listed.ok()) {
      return make_error(listed.error().code, "level {} of the tiered store: {}", level,
                        listed.error().message);
    }
    for (ObjectStat& object : *listed) {
      if (!is_suspect(level, object.name)) merged.try_emplace(object.name, object);
    }
  }
  for (const ObjectStat& object : waiting) {
    const auto [at, added] = merged.try_emplace(object.name, object);
    at->second.bytes = object.bytes;
    at->second.last_used = std::max(at->second.last_used, object.last_used);
  }
  std::vector<ObjectStat> stats;
  stats.reserve(merged.size());
  for (auto& [name, object] : merged) stats.push_back(std::move(object));
  return stats;
}

Status TieredStore::remove(std::string_view name) {
  KVCODEC_CHECK(validate_name(name));
  Stripe& stripe = stripe_of(name);
  const std::lock_guard guard(stripe.changing);
  ++stripe.changes;
  bool found = queue_ != nullptr && queue_->cancel(name);
  std::optional<Error> failed;
  // From below, so that what fails on the way leaves the object where it is asked for first.
  for (size_t level = levels_.size(); level-- > 0;) {
    const bool suspect = is_suspect(level, name);
    const Status removed = levels_[level]->remove(name);
    if (removed.ok() || is_missing(removed.error())) {
      found = found || (removed.ok() && !suspect);
      set_suspect(level, name, false);
    } else if (!failed) {
      failed = make_error(removed.error().code, "level {} of the tiered store: {}", level,
                          removed.error().message);
    }
  }
  if (failed) return *std::move(failed);
  if (found) return ok_status();
  return make_error(ErrorCode::not_found, "no object '{}' in the tiered store", name);
}

Status TieredStore::flush(std::chrono::milliseconds timeout) {
  if (queue_ != nullptr) KVCODEC_CHECK(queue_->flush(timeout));
  for (const auto& level : levels_) KVCODEC_CHECK(level->flush(timeout));
  return ok_status();
}

}  // namespace kvcodec
