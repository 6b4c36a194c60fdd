// SPDX-License-Identifier: Apache-2.0
#include "store/redis_pool.h"

#include "base/error.h"

namespace kvcodec {

Result<RedisPool::Loan> RedisPool::borrow(Deadline deadline) {
  std::unique_ptr<RedisConnection> connection;
  {
    std::unique_lock lock(mutex_);
    const auto is_free = [&] { return on_loan_ < options_.connections; };
    if (deadline.endless()) {
      returned_.wait(lock, is_free);
    } else if (!returned_.wait_until(lock, deadline.at(), is_free)) {
      return make_error(ErrorCode::unavailable,
                        "all {} connections were busy until the deadline was over",
                        options_.connections);
    }
    ++on_loan_;
    while (!idle_.empty() && connection == nullptr) {
      connection = std::move(idle_.back());
      idle_.pop_back();
      // A server that was restarted has hung up: the next one, or a new one.
      if (connection->is_stale()) connection.reset();
    }
  }
  Loan loan(*this, std::move(connection));
  if (!loan.is_open()) {
    KVCODEC_TRY(RedisConnection opened,
                RedisConnection::open(address_, login_, deadline.sooner(options_.connect_timeout),
                                      options_.stall_timeout));
    loan.open(std::make_unique<RedisConnection>(std::move(opened)));
  }
  return loan;
}

void RedisPool::give_back(std::unique_ptr<RedisConnection> connection) {
  {
    const std::lock_guard guard(mutex_);
    --on_loan_;
    if (connection != nullptr) idle_.push_back(std::move(connection));
  }
  returned_.notify_one();
}

}  // namespace kvcodec
