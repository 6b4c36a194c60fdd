// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kvcodec/store.h"

namespace kvcodec {

enum class StoreOp { get, put, stat, list, remove };
inline constexpr size_t kStoreOps = 5;

struct StoreCall {
  StoreOp op;
  std::string_view name;  // the prefix, for list
  uint64_t offset;        // get
  size_t bytes;           // get: room in `out`; put: size of the object
  uint64_t index;         // how many calls of this op there were before
};

// What goes wrong in one call. Several may be set.
struct Fault {
  std::optional<Error> error;  // the call fails with this...
  bool error_after = false;    // ...and not before it had its effect: a lost acknowledgement
  // A get returns no more than this, as no store may before the end of the object.
  size_t max_read = SIZE_MAX;
  // get and stat see, and put keeps, only this many bytes of the object.
  uint64_t truncate_at = UINT64_MAX;
  // get sees, and put keeps, the byte at `first` of the object with the bits of `second` inverted.
  std::optional<std::pair<uint64_t, std::byte>> flip;
};

// Asked before each call, from the calling thread, maybe from several at once. It may also do
// things: sleep, wait for a latch, change the store below.
using FaultPlan = std::function<Fault(const StoreCall&)>;

// A Store that does to its callers what disks and networks do. Without a plan it changes nothing.
// Thread-safe. Borrows `store`.
class FaultyStore final : public Store {
 public:
  explicit FaultyStore(Store& store, FaultPlan plan = {}) : store_(store), plan_(std::move(plan)) {}

  void set_plan(FaultPlan plan) {
    const std::lock_guard guard(mutex_);
    plan_ = std::move(plan);
  }
  uint64_t calls(StoreOp op) const { return calls_[static_cast<size_t>(op)].load(); }

  Result<size_t> get(std::string_view name, std::span<std::byte> out, uint64_t offset) override {
    const Fault fault = ask(StoreOp::get, name, offset, out.size());
    if (fault.error) return *fault.error;
    const uint64_t visible = fault.truncate_at > offset ? fault.truncate_at - offset : 0;
    const size_t room =
        static_cast<size_t>(std::min({uint64_t{out.size()}, uint64_t{fault.max_read}, visible}));
    KVCODEC_TRY(const size_t n, store_.get(name, out.first(room), offset));
    apply_flip(fault, out.first(n), offset);
    return n;
  }

  Status put(std::string_view name, std::span<const std::byte> bytes) override {
    const Fault fault = ask(StoreOp::put, name, 0, bytes.size());
    if (fault.error && !fault.error_after) return *fault.error;
    std::vector<std::byte> kept(bytes.begin(), bytes.end());
    kept.resize(static_cast<size_t>(std::min<uint64_t>(kept.size(), fault.truncate_at)));
    apply_flip(fault, kept, 0);
    KVCODEC_CHECK(store_.put(name, kept));
    if (fault.error) return *fault.error;
    return ok_status();
  }

  Result<ObjectStat> stat(std::string_view name) override {
    const Fault fault = ask(StoreOp::stat, name, 0, 0);
    if (fault.error) return *fault.error;
    KVCODEC_TRY(ObjectStat stat, store_.stat(name));
    stat.bytes = std::min(stat.bytes, fault.truncate_at);
    return stat;
  }

  Result<std::vector<ObjectStat>> list(std::string_view prefix) override {
    const Fault fault = ask(StoreOp::list, prefix, 0, 0);
    if (fault.error) return *fault.error;
    return store_.list(prefix);
  }

  Status flush(std::chrono::milliseconds timeout) override { return store_.flush(timeout); }

  Status remove(std::string_view name) override {
    const Fault fault = ask(StoreOp::remove, name, 0, 0);
    if (fault.error && !fault.error_after) return *fault.error;
    KVCODEC_CHECK(store_.remove(name));
    if (fault.error) return *fault.error;
    return ok_status();
  }

 private:
  Fault ask(StoreOp op, std::string_view name, uint64_t offset, size_t bytes) {
    const uint64_t index = calls_[static_cast<size_t>(op)].fetch_add(1);
    FaultPlan plan;
    {
      const std::lock_guard guard(mutex_);
      plan = plan_;
    }
    return plan ? plan({op, name, offset, bytes, index}) : Fault{};
  }

  static void apply_flip(const Fault& fault, std::span<std::byte> bytes, uint64_t offset) {
    if (!fault.flip || fault.flip->first < offset) return;
    const uint64_t at = fault.flip->first - offset;
    if (at < bytes.size()) bytes[static_cast<size_t>(at)] ^= fault.flip->second;
  }

  Store& store_;
  std::mutex mutex_;  // guards plan_
  FaultPlan plan_;
  std::array<std::atomic<uint64_t>, kStoreOps> calls_{};
};

// Plans for the common cases.

// Calls first, first + 1, ... first + count - 1 of `op` fail.
inline FaultPlan fail_calls(StoreOp op, ErrorCode code, uint64_t first = 0,
                            uint64_t count = UINT64_MAX) {
  return [=](const StoreCall& call) {
    Fault fault;
    if (call.op == op && call.index >= first && call.index - first < count) {
      fault.error = make_error(code, "injected into call {} for '{}'", call.index, call.name);
    }
    return fault;
  };
}

// Gets of `name` (of all objects where it is empty) return at most `bytes`.
inline FaultPlan short_reads(size_t bytes, std::string name = {}) {
  return [=](const StoreCall& call) {
    Fault fault;
    if (call.op == StoreOp::get && (name.empty() || call.name == name)) fault.max_read = bytes;
    return fault;
  };
}

// `name` appears to be cut off at `bytes`.
inline FaultPlan truncate_object(std::string name, uint64_t bytes) {
  return [=](const StoreCall& call) {
    Fault fault;
    if (call.op != StoreOp::put && call.name == name) fault.truncate_at = bytes;
    return fault;
  };
}

// The byte at `offset` of `name` is read with the bits of `mask` inverted.
inline FaultPlan flip_bits(std::string name, uint64_t offset, std::byte mask) {
  return [=](const StoreCall& call) {
    Fault fault;
    if (call.op == StoreOp::get && call.name == name) fault.flip = {offset, mask};
    return fault;
  };
}

}  // namespace kvcodec
