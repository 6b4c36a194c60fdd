// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <condition_variable>
#include <latch>
#include <mutex>

#include "gpu/nvdec_fixture.h"

namespace kvcodec::hevc {
namespace {

// Without a GPU too: a pool is there, or the error says what is missing.
TEST(NvdecCreate, SaysWhatIsMissing) {
  const auto pool = NvdecPool::create();
  if (pool.ok()) {
    EXPECT_GE((*pool)->info().engines, 1u);
    EXPECT_GE((*pool)->info().max_width, 4096u);
    return;
  }
  EXPECT_EQ(pool.error().code, ErrorCode::unsupported);
  EXPECT_EQ(pool.error().message.substr(0, 7), "NVDEC: ");
}

class NvdecPoolTest : public NvdecTest {
 protected:
  static std::unique_ptr<NvdecPool> new_pool(const NvdecOptions& options = {}) {
    auto pool = NvdecPool::create(options);
    EXPECT_TRUE(pool.ok()) << (pool.ok() ? "" : pool.error().message);
    return std::move(*pool);
  }
  // Decodes `slice` and does nothing with it.
  static NvdecJob job(const TestPicture& picture, const std::vector<uint8_t>& slice,
                      std::function<void(Status)> done) {
    NvdecJob job;
    job.parameters = picture.parameters();
    job.slice_data = slice;
    job.use = [](const DevicePicture&, void*) { return ok_status(); };
    job.done = std::move(done);
    return job;
  }

  const TestPicture picture_ = laplacian_picture(256, 256, 2, 1);
  const std::vector<uint8_t> slice_ = encode(picture_);
};

TEST_F(NvdecPoolTest, NoSuchGpu) {
  for (const int device : {-1, 4096}) {
    const auto pool = NvdecPool::create({.device = device});
    ASSERT_FALSE(pool.ok());
    EXPECT_EQ(pool.error().code, ErrorCode::unsupported);
  }
}

TEST_F(NvdecPoolTest, GivesThePicturesSize) {
  const auto pool = new_pool();
  std::latch left(1);
  NvdecJob request = job(picture_, slice_, [&](Status status) {
    EXPECT_EQ(message(status), "ok");
    left.count_down();
  });
  request.use = [](const DevicePicture& picture, void* stream) {
    EXPECT_NE(picture.samples, 0u);
    EXPECT_NE(stream, nullptr);
    EXPECT_EQ(picture.width, 256u);
    EXPECT_EQ(picture.height, 256u);
    EXPECT_GE(picture.pitch, 256u);
    return ok_status();
  };
  pool->submit(std::move(request));
  left.wait();
  EXPECT_EQ(pool->stats().pictures, 1u);
  EXPECT_EQ(pool->stats().created, 1u);
}

// With one session whose first picture waits, what is urgent overtakes what came earlier.
TEST_F(NvdecPoolTest, PriorityThenOrder) {
  const auto pool = new_pool({.sessions = 1});
  std::mutex mutex;
  std::vector<int> order;
  std::latch gate(1), left(13);
  NvdecJob first = job(picture_, slice_, [&](Status) { left.count_down(); });
  first.priority = 9;
  first.use = [&](const DevicePicture&, void*) {
    gate.wait();
    return ok_status();
  };
  // Other sizes than the first: the session cannot start them while it is there.
  const TestPicture other = laplacian_picture(160, 160, 2, 2);
  const std::vector<uint8_t> other_slice = encode(other);
  pool->submit(std::move(first));
  for (int i = 0; i < 12; ++i) {
    NvdecJob request = job(other, other_slice, [&, i](Status status) {
      EXPECT_EQ(message(status), "ok");
      const std::lock_guard lock(mutex);
      order.push_back(i);
      left.count_down();
    });
    request.priority = i < 6 ? 0 : 5;
    pool->submit(std::move(request));
  }
  gate.count_down();
  left.wait();
  // The session may have taken job 0 before 6 to 11 were there.
  std::erase(order, 0);
  EXPECT_EQ(order, (std::vector{6, 7, 8, 9, 10, 11, 1, 2, 3, 4, 5}));
}

TEST_F(NvdecPoolTest, ErrorsOfUseReachDone) {
  const auto pool = new_pool();
  std::latch left(1);
  NvdecJob request = job(picture_, slice_, [&](Status status) {
    EXPECT_EQ(message(status), "no room");
    left.count_down();
  });
  request.use = [](const DevicePicture&, void*) -> Status {
    return Error{ErrorCode::out_of_memory, "no room"};
  };
  pool->submit(std::move(request));
  left.wait();
  EXPECT_EQ(pool->stats().failed, 1u);
}

TEST_F(NvdecPoolTest, CancelledAndClosed) {
  std::atomic<int> decoded = 0, cancelled = 0;
  constexpr int kJobs = 400;
  {
    const auto pool = new_pool({.sessions = 1});
    std::stop_source stop;
    for (int i = 0; i < kJobs; ++i) {
      NvdecJob request = job(picture_, slice_, [&](Status status) {
        if (status.ok()) {
          ++decoded;
        } else {
          EXPECT_EQ(status.error().code, ErrorCode::cancelled) << message(status);
          ++cancelled;
        }
      });
      if (i % 2 == 0) request.stop = stop.get_token();
      pool->submit(std::move(request));
      if (i == kJobs / 2) stop.request_stop();
    }
  }  // the destructor ends what is left
  EXPECT_EQ(decoded + cancelled, kJobs);
  EXPECT_GE(cancelled, kJobs / 4);
}

TEST_F(NvdecPoolTest, RefusesWhatMemoryDoesNotAllow) {
  const auto pool = new_pool({.sessions = 1, .max_device_bytes = 8 << 20});
  const TestPicture large(2048, 2048);
  const std::vector<uint8_t> large_slice = encode(large);
  std::latch left(2);
  pool->submit(job(large, large_slice, [&](Status status) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::out_of_memory) << message(status);
    left.count_down();
  }));
  pool->submit(job(picture_, slice_, [&](Status status) {
    EXPECT_EQ(message(status), "ok");
    left.count_down();
  }));
  left.wait();
}

}  // namespace
}  // namespace kvcodec::hevc
