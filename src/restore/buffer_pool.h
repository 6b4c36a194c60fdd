// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/cuda.h"

namespace kvcodec::restore {

template <typename Buffer>
class BufferPool;

// A buffer of a pool, given back when this ends.
template <typename Buffer>
class PooledBuffer {
 public:
  PooledBuffer() = default;
  PooledBuffer(BufferPool<Buffer>* pool, Buffer buffer) : pool_(pool), buffer_(std::move(buffer)) {}
  PooledBuffer(PooledBuffer&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), buffer_(std::move(other.buffer_)) {}
  PooledBuffer& operator=(PooledBuffer&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~PooledBuffer() {
    if (pool_ != nullptr) pool_->give_back(std::move(buffer_));
  }
  const Buffer* operator->() const { return &buffer_; }

 private:
  BufferPool<Buffer>* pool_ = nullptr;
  Buffer buffer_;
};

// Keeps a few buffers: allocating page-locked or device memory stops the GPU. Thread-safe; must
// outlive its buffers.
template <typename Buffer>
class BufferPool {
 public:
  // A buffer of at least that size, and not much more.
  Result<PooledBuffer<Buffer>> take(const CudaDriver& driver, size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      for (Buffer& idle : idle_) {
        if (idle.size() < bytes || idle.size() > 2 * bytes) continue;
        std::swap(idle, idle_.back());
        Buffer buffer = std::move(idle_.back());
        idle_.pop_back();
        return PooledBuffer<Buffer>(this, std::move(buffer));
      }
    }
    KVCODEC_TRY(auto buffer, Buffer::allocate(driver, bytes + bytes / 8));
    return PooledBuffer<Buffer>(this, std::move(buffer));
  }

 private:
  friend class PooledBuffer<Buffer>;
  static constexpr size_t kMaxIdle = 16;

  void give_back(Buffer buffer) {
    Buffer oldest;  // freed after the lock
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(buffer));
    if (idle_.size() <= kMaxIdle) return;
    oldest = std::move(idle_.front());
    idle_.erase(idle_.begin());
  }

  std::mutex mutex_;
  std::vector<Buffer> idle_;
};

}  // namespace kvcodec::restore
