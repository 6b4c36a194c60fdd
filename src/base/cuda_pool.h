// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/cuda.h"

namespace kvcodec {

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

// Keeps buffers: allocating or freeing page-locked or device memory waits for all work of the GPU,
// an engine's too. Thread-safe; must outlive its buffers.
template <typename Buffer>
class BufferPool {
 public:
  // Idle buffers are freed where in all more than max_bytes would be allocated.
  void limit(uint64_t max_bytes) { max_bytes_ = max_bytes; }

  // What take() allocates for so many bytes: at most 1/16 more, so that buffers suit others too.
  static size_t rounded(size_t bytes) {
    const int drop = std::max(static_cast<int>(std::bit_width(bytes)) - 5, 0);
    const size_t step = size_t{1} << drop;
    return (bytes + step - 1) / step * step;
  }

  // A buffer of at least that size, and not much more.
  Result<PooledBuffer<Buffer>> take(const CudaDriver& driver, size_t bytes) {
    std::vector<Buffer> freed;  // after the lock
    const size_t size = rounded(bytes);
    {
      const std::lock_guard lock(mutex_);
      for (Buffer& idle : idle_) {
        if (idle.size() < bytes || idle.size() > size + size / 16) continue;
        std::swap(idle, idle_.back());
        Buffer buffer = std::move(idle_.back());
        idle_.pop_back();
        return PooledBuffer<Buffer>(this, std::move(buffer));
      }
      while (!idle_.empty() && allocated_ + size > max_bytes_) {
        allocated_ -= idle_.front().size();
        freed.push_back(std::move(idle_.front()));
        idle_.erase(idle_.begin());
      }
      allocated_ += size;
    }
    freed.clear();
    auto buffer = Buffer::allocate(driver, size);
    if (!buffer.ok()) {
      const std::lock_guard lock(mutex_);
      allocated_ -= size;
      return buffer.error();
    }
    return PooledBuffer<Buffer>(this, *std::move(buffer));
  }

 private:
  friend class PooledBuffer<Buffer>;

  void give_back(Buffer buffer) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(buffer));
  }

  std::mutex mutex_;
  std::vector<Buffer> idle_;
  uint64_t allocated_ = 0;  // idle or not
  uint64_t max_bytes_ = uint64_t{1} << 30;
};

}  // namespace kvcodec
