// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvcodec/llama.h"
#include "unit/engines/code_of.h"

namespace kvcodec {

// Two engines of one model and different contexts, loaded once, and 200 tokens of text with what
// the first engine computes for them. Borders of batches are multiples of 16.
class LlamaTest : public testing::Test {
 public:
  static constexpr uint32_t kBatch = 16, kPrefix = 128, kTokens = 200, kAnswer = 8;
  static constexpr int kThreads = 1;  // others spin where the machine is busy

  struct Shared {
    std::string path;
    LlamaEngine a, b;
    std::vector<int32_t> text;  // kTokens of them
    std::vector<float> logits_16, logits_32, logits_200;
    std::vector<int32_t> answer;    // up to kAnswer most likely tokens after the text
    std::vector<float> logits_201;  // after the first of them
    LlamaKv kv;                     // of the text, from a
  };

  void SetUp() override {
    const char* path = std::getenv("KVCODEC_TEST_MODEL");
    if (path == nullptr)
      GTEST_SKIP() << "KVCODEC_TEST_MODEL is not set: give it the path of a small GGUF model";
    if (!instance) load(path);
    ASSERT_TRUE(instance);
    a().reset();
    b().reset();
  }
  static void TearDownTestSuite() { instance.reset(); }

  static Shared& shared() { return *instance; }
  static LlamaEngine& a() { return instance->a; }
  static LlamaEngine& b() { return instance->b; }
  static std::span<const int32_t> text(uint32_t first, uint32_t count) {
    return std::span<const int32_t>(instance->text).subspan(first, count);
  }

  static LlamaOptions options(uint32_t context) {
    return {.context_tokens = context, .threads = kThreads, .batch_tokens = kBatch};
  }

 private:
  static void load(const std::string& path);
  static inline std::unique_ptr<Shared> instance;
};

// Every element of `from` into `to`, through the geometries alone.
void copy_kv(const KvSource& from, const KvTarget& to, uint32_t tokens);

}  // namespace kvcodec
