// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <optional>
#include <vector>

#include "hevc/nvdec_driver.h"

namespace kvcodec::hevc {

// The largest coded sides met so far. Thread-safe.
struct LargestPicture {
  std::atomic<uint32_t> width = 0, height = 0;
  void include(uint32_t w, uint32_t h) {
    for (uint32_t now = width; now < w && !width.compare_exchange_weak(now, w);) {
    }
    for (uint32_t now = height; now < h && !height.compare_exchange_weak(now, h);) {
    }
  }
};

// One hardware decoder: pictures of one size at a time, several in flight. Slots [0, depth()) hold
// them. Used by one thread, with the driver's context current, while the driver lives. After a
// device error a session must be thrown away.
class NvdecSession {
 public:
  // max_bytes: of device memory for the surfaces of one session.
  // `largest`: of all sessions of a pool, so that one need not grow step by step as another did.
  NvdecSession(const NvdecDriver& driver, uint64_t max_bytes, int stream_priority,
               LargestPicture& largest)
      : driver_(driver),
        max_bytes_(max_bytes),
        stream_priority_(stream_priority),
        largest_(largest) {}
  ~NvdecSession();
  NvdecSession(const NvdecSession&) = delete;
  NvdecSession& operator=(const NvdecSession&) = delete;

  // Whether pictures of these parameters decode as the session is.
  bool accepts(const StreamParameters& parameters) const {
    return decoder_ != nullptr && parameters == parameters_;
  }
  // Prepares for other parameters; nothing may be in flight. Sets `created` where a new decoder
  // had to be made. out_of_memory where max_bytes is too small for such pictures.
  Status configure(const StreamParameters& parameters, bool& created);
  size_t depth() const { return static_cast<size_t>(depth_); }  // 0 before configure()
  CUstream stream() const { return stream_; }

  // Starts decoding; the data is copied before it returns.
  Status submit(int slot, std::span<const uint8_t> slice_data);
  // Waits for the slot's picture. corrupt where NVDEC reports an error in it.
  Result<DevicePicture> map(int slot);
  // Marks the end of what was enqueued on stream() for the mapped slot.
  Status mark(int slot);
  // Waits for that, and frees the slot.
  Status unmap(int slot);

 private:
  struct Slot {
    CUdeviceptr mapped = 0;
    CUevent used = nullptr;
  };
  // Pictures in flight that max_bytes leaves room for.
  int fitting_depth(uint32_t width, uint32_t height) const;
  Status create(uint32_t width, uint32_t height);
  Status reconfigure(uint32_t width, uint32_t height);
  Status decode(int surface, std::span<const uint8_t> data, bool flat);
  void destroy();

  const NvdecDriver& driver_;
  const uint64_t max_bytes_;
  const int stream_priority_;
  LargestPicture& largest_;
  CUvideodecoder decoder_ = nullptr;
  CUstream stream_ = nullptr;
  StreamParameters parameters_;
  uint32_t width_ = 0, height_ = 0;          // coded size the decoder is set to
  uint32_t max_width_ = 0, max_height_ = 0;  // that it was created for
  int depth_ = 0;
  std::vector<Slot> slots_;
  std::vector<uint8_t> header_;  // of every P picture
  std::vector<uint8_t> input_;
};

}  // namespace kvcodec::hevc
