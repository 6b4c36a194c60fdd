// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "base/error.h"
#include "kvcodec/store.h"
#include "store/link_schedule.h"

namespace kvcodec {
namespace {

using Clock = LinkSchedule::Clock;

constexpr double kMinBitsPerSecond = 1;

// Sleeping alone wakes 50 to 100 us late, as long as 100 KB take at 10 Gb/s.
void wait_until(Clock::time_point deadline) {
  constexpr auto kSpin = std::chrono::microseconds(200);
  std::this_thread::sleep_until(deadline - kSpin);
  while (Clock::now() < deadline) {
  }
}

class LinkLimitedStore final : public Store {
 public:
  LinkLimitedStore(Store& store, const LinkTrace& trace)
      : store_(store), trace_(trace), schedule_(trace) {}

  // The store reads while the link carries, so the slower of both counts. One get of the store,
  // not one a slice: slices could be of two versions of the object.
  Result<size_t> get(std::string_view name, std::span<std::byte> out, uint64_t offset) override {
    const auto begin = Clock::now();
    KVCODEC_CHECK(check_rate());
    KVCODEC_TRY(const size_t n, store_.get(name, out, offset));
    carry(begin, n);
    return n;
  }

  Status put(std::string_view name, std::span<const std::byte> bytes) override {
    KVCODEC_CHECK(check_rate());
    carry(Clock::now(), bytes.size());
    return store_.put(name, bytes);
  }

  Result<ObjectStat> stat(std::string_view name) override { return store_.stat(name); }
  Result<std::vector<ObjectStat>> list(std::string_view prefix) override {
    return store_.list(prefix);
  }
  Status remove(std::string_view name) override { return store_.remove(name); }
  Status flush(std::chrono::milliseconds timeout) override { return store_.flush(timeout); }

 private:
  Status check_rate() const {
    double fastest = 0;
    for (const auto& step : trace_.steps) {
      if (!(step.seconds > 0) || !(step.bits_per_second >= 0))
        return make_error(ErrorCode::invalid_argument,
                          "limit_bandwidth: a step of {} s and {} bits per second", step.seconds,
                          step.bits_per_second);
      fastest = std::max(fastest, step.bits_per_second);
    }
    if (fastest >= kMinBitsPerSecond) return ok_status();
    return make_error(ErrorCode::invalid_argument,
                      "limit_bandwidth: {} bits per second; expected at least {}", fastest,
                      kMinBitsPerSecond);
  }

  void carry(Clock::time_point begin, uint64_t bytes) {
    const uint64_t slice = schedule_.slice_bytes();
    uint64_t reserved = 0;
    Clock::time_point deadline = begin, next = begin;
    while (reserved < bytes) {
      // One slice ahead, or the link would stand idle between a deadline and our waking up.
      const uint64_t n = std::min(slice, bytes - reserved);
      deadline = next;
      next = schedule_.reserve(begin, n);
      reserved += n;
      std::this_thread::sleep_until(deadline);
    }
    wait_until(next);
  }

  Store& store_;
  const LinkTrace trace_;
  LinkSchedule schedule_;
};

}  // namespace

std::unique_ptr<Store> limit_bandwidth(Store& store, double bits_per_second) {
  return limit_bandwidth(store, LinkTrace{{{1, bits_per_second}}});
}

std::unique_ptr<Store> limit_bandwidth(Store& store, const LinkTrace& trace) {
  return std::make_unique<LinkLimitedStore>(store, trace);
}

}  // namespace kvcodec
