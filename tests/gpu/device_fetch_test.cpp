// SPDX-License-Identifier: Apache-2.0
// An adaptive fetch into GPU memory restores what one into host memory does.
#include <algorithm>

#include "gpu/device_memory.h"
#include "kvcodec/adaptive.h"
#include "unit/codec/codec_cases.h"

namespace kvcodec {
namespace {

TEST(DeviceFetch, IsAsOnTheHost) {
  auto device = DeviceRestorer::create();
  if (!device.ok()) {
    ASSERT_EQ(device.error().code, ErrorCode::unsupported) << device.error().message;
    GTEST_SKIP() << device.error().message;
  }
  const auto driver = *CudaDriver::open(0);
  constexpr uint32_t kTokens = 5 * 64, kChunk = 64;
  const auto cache = testing_codec::random_values({2, 2, 64, 64, DType::f16}, kTokens, 5);
  std::vector<int32_t> tokens(kTokens);
  for (uint32_t i = 0; i < kTokens; ++i) tokens[i] = static_cast<int32_t>(i);
  const auto store = *open_store("mem:");
  const Digest ns{};
  PublishOptions publish;
  publish.chunk_tokens = kChunk;
  const std::vector<std::string> all = {"exact", "int8"};
  ASSERT_TRUE(publish_renditions(*store, ns, tokens, cache.source(), all, publish).ok());
  // A chunk that only int8 has, so that renditions mix.
  ASSERT_TRUE(store->remove(object_name(ns, chunk_keys(ns, tokens, kChunk)[2], "exact")).ok());
  const KvGeometry geometry = KvGeometry::contiguous(cache.geometry.shape, kTokens);
  AdaptiveOptions options;
  options.chunk_tokens = kChunk;
  options.assumed_bytes_per_second = 1e12;
  for (const char* floor : {"exact", "int8"}) {
    options.renditions = {floor, "int8"};
    std::vector<std::byte> host(geometry.contiguous_bytes(), std::byte{0x5a});
    const DeviceMemory memory(*driver, host);
    PrefixFetcher fetcher(*store, *DecodeRates::of("h200"));
    const auto on_device = device_restorer(**device, memory.target(geometry));
    ASSERT_TRUE(on_device.ok());
    const auto report = fetcher.fetch(ns, tokens, **on_device, options);
    ASSERT_TRUE(report.ok()) << report.error().message;
    ASSERT_EQ(report->chunks, 5u);
    // The same renditions on the host.
    const auto keys = chunk_keys(ns, tokens, kChunk);
    for (size_t i = 0; i < 5; ++i) {
      const auto object =
          get_object(*store, object_name(ns, keys[i], report->renditions[i]), UINT64_MAX);
      ASSERT_TRUE(decode_chunk(*object, {host, &geometry}, static_cast<uint32_t>(i * kChunk)).ok());
    }
    EXPECT_TRUE(memory.read() == host);
  }
}

}  // namespace
}  // namespace kvcodec
