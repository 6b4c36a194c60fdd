// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "base/cuda.h"
#include "kvcodec/device.h"

namespace kvcodec {

// Device memory that holds a copy of host bytes.
class DeviceMemory {
 public:
  DeviceMemory(const CudaDriver& driver, std::span<const std::byte> bytes) : driver_(driver) {
    auto buffer = DeviceBuffer::allocate(driver, bytes.size());
    EXPECT_TRUE(buffer.ok());
    buffer_ = *std::move(buffer);
    const CudaScope scope(driver_);
    EXPECT_EQ(driver_.cuda().cuMemcpyHtoD(buffer_.data(), bytes.data(), bytes.size()), 0);
  }
  std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(buffer_.size());
    const CudaScope scope(driver_);
    EXPECT_EQ(driver_.cuda().cuMemcpyDtoH(bytes.data(), buffer_.data(), bytes.size()), 0);
    return bytes;
  }
  DeviceTarget target(const KvGeometry& geometry) const {
    return {buffer_.data(), buffer_.size(), &geometry};
  }

 private:
  const CudaDriver& driver_;
  DeviceBuffer buffer_;
};

}  // namespace kvcodec
