// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "kvcodec/store.h"
#include "store/redis_manifest.h"
#include "store/redis_pool.h"
#include "store/store_uri.h"

namespace kvcodec {

// Objects in a Redis or Valkey server (6.0 or later).
//
// A small object is one string, set at once. A larger one is cut into parts under keys of a random
// version, which expire by themselves until the manifest that names them is set in one transaction;
// so a reader sees a version whole or not at all, whatever becomes of writers, and no call holds up
// the server for longer than one part takes. All keys of an object share a hash tag. Bounding the
// memory is the server's task (maxmemory and its policy): an object that lost a part to eviction is
// not there.
class RedisStore final : public Store {
 public:
  static Result<std::unique_ptr<RedisStore>> open(const StoreUri& uri, StoreOptions options);

  Result<size_t> get(std::string_view name, std::span<std::byte> out, uint64_t offset) override;
  Status put(std::string_view name, std::span<const std::byte> bytes) override;
  Result<ObjectStat> stat(std::string_view name) override;
  Result<std::vector<ObjectStat>> list(std::string_view prefix) override;
  Status remove(std::string_view name) override;

 private:
  using Loan = RedisPool::Loan;
  // Parts in flight on one connection: what the server must buffer for us.
  static constexpr uint64_t kWindow = 8;
  static constexpr int kMaxRaces = 100;
  struct Config {
    std::string shown, prefix;
    std::chrono::milliseconds ttl{0};
    uint64_t part_bytes = uint64_t{1} << 20;
  };

  RedisStore(Config config, NetAddress address, RedisLogin login, const StoreOptions& options)
      : config_(std::move(config)),
        options_(options),
        pool_(std::move(address), std::move(login), options) {}

  // Runs `attempt` on a connection, again on a new one where it failed with unavailable.
  template <typename T>
  Result<T> with_retries(std::string_view what, std::string_view name,
                         const std::function<Result<T>(Loan&, Deadline, bool again)>& attempt);
  std::string key(std::string_view name) const;
  std::string part_key(std::string_view name, const RedisManifest& manifest, uint64_t part) const;

  // The manifest and, where the object is small, the object; empty where there is none.
  Result<std::string> read_manifest(Loan& loan, std::string_view name, Deadline deadline);
  // Reads a range that is within the object. False where a part is missing.
  Result<bool> read_parts(Loan& loan, std::string_view name, const RedisManifest& manifest,
                          std::span<std::byte> out, uint64_t offset, Deadline deadline);
  Result<size_t> try_get(Loan& loan, std::string_view name, std::span<std::byte> out,
                         uint64_t offset, Deadline deadline);
  Status try_put(Loan& loan, std::string_view name, std::span<const std::byte> bytes,
                 Deadline deadline);
  Status send_parts(Loan& loan, std::string_view name, const RedisManifest& manifest,
                    std::span<const std::byte> bytes, Deadline deadline);
  Status try_remove(Loan& loan, std::string_view name, Deadline deadline, bool again);
  // Replaces the manifest that `old` holds by `value` (removes it where that is empty) together
  // with its parts. False where the object was changed meanwhile; the key must be watched.
  Result<bool> replace(Loan& loan, std::string_view name, std::string_view old,
                       std::string_view value, const RedisManifest* manifest, Deadline deadline);
  Status stat_keys(Loan& loan, const std::vector<RedisReply>& keys, std::vector<ObjectStat>& stats,
                   Deadline deadline);

  const Config config_;
  const StoreOptions options_;
  RedisPool pool_;
};

template <typename T>
Result<T> RedisStore::with_retries(
    std::string_view what, std::string_view name,
    const std::function<Result<T>(Loan&, Deadline, bool again)>& attempt) {
  const Deadline deadline = Deadline::in(options_.deadline);
  Retry retry(deadline);
  for (;;) {
    Result<T> result = [&]() -> Result<T> {
      KVCODEC_TRY(Loan loan, pool_.borrow(deadline));
      Result<T> done = attempt(loan, deadline, retry.attempts() > 1);
      // These two are what the server answered; after any other error the stream is out of step.
      if (done.ok() || done.error().code == ErrorCode::not_found) loan.keep();
      return done;
    }();
    if (result.ok() || result.error().code == ErrorCode::not_found) return result;
    result.error().message =
        fmt::format("{} '{}' in {}: {}", what, name, config_.shown, result.error().message);
    if (result.error().code != ErrorCode::unavailable) return result;
    if (!retry.wait()) return retry.give_up(result.error());
  }
}

// Helpers of the store's sources.
Error no_redis_object(std::string_view name);
// The error of a reply that is not what it should be.
Error unexpected_reply(std::string_view what, const RedisReply& reply);
// Reads "+OK" or the like.
Status expect_ok(RedisConnection& connection, std::string_view what, Deadline deadline);

}  // namespace kvcodec
