// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "store/redis_connection.h"

namespace kvcodec {

// Connections to one server, each used by one call at a time. Thread-safe.
class RedisPool {
 public:
  RedisPool(NetAddress address, RedisLogin login, const StoreOptions& options)
      : address_(std::move(address)), login_(std::move(login)), options_(options) {}

  // A connection on loan. It goes back where `keep` was called, which says that all its replies
  // were read; else it is closed.
  class Loan {
   public:
    Loan(RedisPool& pool, std::unique_ptr<RedisConnection> connection)
        : pool_(&pool), connection_(std::move(connection)) {}
    Loan(Loan&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), connection_(std::move(other.connection_)) {}
    Loan& operator=(Loan&&) = delete;
    ~Loan() {
      if (pool_ != nullptr) pool_->give_back(nullptr);
    }
    bool is_open() const { return connection_ != nullptr; }
    void open(std::unique_ptr<RedisConnection> connection) { connection_ = std::move(connection); }
    RedisConnection* operator->() { return connection_.get(); }
    RedisConnection& operator*() { return *connection_; }
    void keep() {
      if (pool_ != nullptr) std::exchange(pool_, nullptr)->give_back(std::move(connection_));
    }

   private:
    RedisPool* pool_;
    std::unique_ptr<RedisConnection> connection_;
  };

  // Waits while all connections are on loan; opens one where none is idle.
  Result<Loan> borrow(Deadline deadline);

 private:
  void give_back(std::unique_ptr<RedisConnection> connection);

  const NetAddress address_;
  const RedisLogin login_;
  const StoreOptions options_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::unique_ptr<RedisConnection>> idle_;
  uint32_t on_loan_ = 0;
};

}  // namespace kvcodec
