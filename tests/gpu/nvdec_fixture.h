// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hevc/nvdec.h"
#include "unit/hevc/hevc_pictures.h"

namespace kvcodec::hevc {

// Tests that need a GPU; where there is none they skip and say why.
class NvdecTest : public testing::Test {
 protected:
  void SetUp() override {
    auto pool = NvdecPool::create();
    if (pool.ok()) return;
    ASSERT_EQ(pool.error().code, ErrorCode::unsupported) << pool.error().message;
    GTEST_SKIP() << pool.error().message;
  }
};

inline std::unique_ptr<Decoder> new_nvdec_decoder(const NvdecOptions& options = {}) {
  auto decoder = create_nvdec_decoder(options);
  EXPECT_TRUE(decoder.ok()) << (decoder.ok() ? "" : decoder.error().message);
  return std::move(*decoder);
}

}  // namespace kvcodec::hevc
