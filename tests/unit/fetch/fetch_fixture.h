// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kvcodec/fetch.h"

namespace kvcodec {

inline constexpr uint32_t kTestChunk = 16;

// A small f16 cache of random finite values over `tokens` tokens, published chunk by chunk.
class FetchFixture : public testing::Test {
 protected:
  static constexpr uint32_t kTokens = 5 * kTestChunk + 7;

  void SetUpStore() {
    auto opened = open_store("mem:");
    ASSERT_TRUE(opened.ok());
    store_ = *std::move(opened);
  }
  void SetUp() override {
    SetUpStore();
    std::mt19937 random(7);
    for (uint32_t i = 0; i < kTokens; ++i)
      tokens_.push_back(static_cast<int32_t>(random() % 50000));
    geometry_ = KvGeometry::contiguous({2, 2, 8, 8, DType::f16}, kTokens);
    memory_.resize(geometry_.contiguous_bytes());
    for (size_t i = 0; i < memory_.size(); i += 2) {
      const uint16_t half =
          static_cast<uint16_t>((random() % 2) << 15 | (0x3000 + random() % 0x1000));
      std::memcpy(memory_.data() + i, &half, 2);
    }
    namespace_ = sha256(std::as_bytes(std::span("test")));
  }

  KvSource source() const { return {memory_, &geometry_}; }

  PublishOptions publish_options(Tier tier = Tier::exact) const {
    PublishOptions options;
    options.encode.tier = tier;
    options.encode.threads = 1;
    options.chunk_tokens = kTestChunk;
    return options;
  }

  FetchOptions fetch_options() const {
    FetchOptions options;
    options.chunk_tokens = kTestChunk;
    options.threads = 1;
    return options;
  }

  void publish(Store& store, Tier tier = Tier::exact) {
    const auto report = publish_prefix(store, namespace_, tokens_, source(), publish_options(tier));
    ASSERT_TRUE(report.ok()) << report.error().message;
  }

  std::string name(size_t chunk, const char* rendition = "exact") const {
    return object_name(namespace_, chunk_keys(namespace_, tokens_, kTestChunk)[chunk], rendition);
  }

  // A target of the cache's own geometry, filled with a pattern that a restore must replace.
  struct Target {
    KvGeometry geometry;
    std::vector<std::byte> memory;
    KvTarget target() { return {memory, &geometry}; }
  };
  static constexpr std::byte kUntouched{0xa5};
  Target make_target() const {
    return {geometry_, std::vector<std::byte>(memory_.size(), kUntouched)};
  }

  // Tokens [0, restored) hold the cache, all others still the pattern.
  void expect_restored(const Target& target, uint32_t restored) const {
    for (KvKind kind : kKvKinds) {
      for (uint32_t layer = 0; layer < geometry_.shape.layers; ++layer) {
        for (uint32_t token = 0; token < kTokens; ++token) {
          for (uint32_t head = 0; head < geometry_.shape.kv_heads; ++head) {
            const size_t at = geometry_.element_offset(kind, layer, token, head, 0);
            const size_t bytes = geometry_.shape.head_dim(kind) * size_t{2};
            const std::vector<std::byte> pattern(bytes, kUntouched);
            const auto* want = token < restored ? memory_.data() + at : pattern.data();
            ASSERT_EQ(std::memcmp(target.memory.data() + at, want, bytes), 0)
                << kv_kind_name(kind) << " layer " << layer << " token " << token;
          }
        }
      }
    }
  }

  std::unique_ptr<Store> store_;
  Digest namespace_;
  std::vector<int32_t> tokens_;
  KvGeometry geometry_;
  std::vector<std::byte> memory_;
};

}  // namespace kvcodec
