// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/store.h"
#include "store/write_back_queue.h"

namespace kvcodec {

// See make_tiered_store.
//
// The last level has the truth. A level above that could neither take a new version nor lose the
// old one is not asked for that object again, by this process; several processes that share levels
// above may see an old version there, which does not matter where equal names mean equal contents.
// Promotion never brings back what a put or remove of this process has replaced meanwhile.
class TieredStore final : public Store {
 public:
  TieredStore(std::vector<std::unique_ptr<Store>> levels, const TieredOptions& options);
  ~TieredStore() override;
  TieredStore(const TieredStore&) = delete;
  TieredStore& operator=(const TieredStore&) = delete;

  Result<size_t> get(std::string_view name, std::span<std::byte> out, uint64_t offset) override;
  Status put(std::string_view name, std::span<const std::byte> bytes) override;
  Result<ObjectStat> stat(std::string_view name) override;
  // Of all levels together; fails where one of them does.
  Result<std::vector<ObjectStat>> list(std::string_view prefix) override;
  Status remove(std::string_view name) override;
  Status flush(std::chrono::milliseconds timeout) override;

 private:
  // What changes of objects with the same stripe share.
  struct Stripe {
    std::mutex changing;                // held while levels are changed
    std::mutex promoting;               // held while an object is read to be promoted
    std::atomic<uint64_t> changes = 0;  // puts and removes so far
  };
  // What a level may still hold though it should not.
  struct Suspects {
    std::mutex mutex;
    std::set<std::string, std::less<>> names;
    bool all = false;
  };

  Stripe& stripe_of(std::string_view name);
  bool is_suspect(size_t level, std::string_view name);
  void set_suspect(size_t level, std::string_view name, bool suspect);
  // Asks levels `first` and on; `answer(level)` is tried on each until one has the object.
  template <typename T, typename Answer>
  Result<T> first_answer(std::string_view name, const Answer& answer);
  Result<size_t> get_below(size_t level, std::string_view name, std::span<std::byte> out,
                           uint64_t offset);
  void promote(size_t level, std::string_view name, std::span<const std::byte> bytes,
               uint64_t changes);
  // Puts into the levels above the last one, or sees to it that they do not answer.
  void put_above(std::string_view name, std::span<const std::byte> bytes);
  size_t last() const { return levels_.size() - 1; }

  static constexpr size_t kStripes = 64;
  static constexpr size_t kMaxSuspects = 10000;
  const TieredOptions options_;
  std::vector<std::unique_ptr<Store>> levels_;
  std::vector<std::unique_ptr<Suspects>> suspects_;  // one a level
  std::array<Stripe, kStripes> stripes_;
  std::unique_ptr<WriteBackQueue> queue_;  // null: puts go through at once
};

}  // namespace kvcodec
