// SPDX-License-Identifier: Apache-2.0
#include "unit/engines/llama_fixture.h"

#include <cstring>
#include <utility>

namespace kvcodec {
namespace {

constexpr const char* kText =
    "The river had been rising since the morning, and by noon the lower road was gone. Those who "
    "lived near the mill carried what they could up the hill: blankets, a clock, two sacks of "
    "flour, the cage with the finches. Nobody spoke much. The miller stood at his door and counted "
    "the stones of the old bridge as the water covered them, one after another, and when the last "
    "had disappeared he went inside and wound every clock in the house. In the evening the rain "
    "stopped. A boat came from the other side with bread and lamps, and the ferryman said that the "
    "dam above the town would hold if the night stayed dry. They slept in the school, under maps "
    "of "
    "countries that none of them had seen. At first light the oldest of the children climbed to "
    "the "
    "bell and rang it, because it was a Sunday, and because someone had to. Then the men walked "
    "down "
    "to look. The mill was standing, the road was a field of silt, and on the top step of the "
    "church "
    "sat the heron which everybody knew, as if it had paid for the place and meant to keep it "
    "until "
    "the price of fish came down again.";

}  // namespace

void LlamaTest::load(const std::string& path) {
  auto a = LlamaEngine::open(path, options(512));
  ASSERT_TRUE(a.ok()) << a.error().message;
  LlamaOptions larger = options(768);
  larger.weights = a->weights_digest();
  auto b = LlamaEngine::open(path, larger);
  ASSERT_TRUE(b.ok()) << b.error().message;
  auto tokens = a->tokenize(kText);
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  ASSERT_GE(tokens->size(), kTokens);
  tokens->resize(kTokens);

  const std::span<const int32_t> all(*tokens);
  const auto logits_after = [&](uint32_t first, uint32_t end) {
    EXPECT_TRUE(a->prefill(all.subspan(first, end - first)).ok());
    auto logits = a->logits();
    EXPECT_TRUE(logits.ok());
    return logits.ok() ? *std::move(logits) : std::vector<float>();
  };
  auto logits_16 = logits_after(0, 16);
  auto logits_32 = logits_after(16, 32);
  auto logits_200 = logits_after(32, kTokens);
  auto kv = a->export_kv();
  ASSERT_TRUE(kv.ok()) << kv.error().message;
  auto answer = a->greedy_decode(1);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  ASSERT_EQ(answer->size(), 1u);
  auto logits_201 = a->logits();
  const auto more = a->greedy_decode(kAnswer - 1);
  ASSERT_TRUE(logits_201.ok() && more.ok());
  answer->insert(answer->end(), more->begin(), more->end());
  instance = std::make_unique<Shared>(Shared{path, *std::move(a), *std::move(b), *std::move(tokens),
                                             std::move(logits_16), std::move(logits_32),
                                             std::move(logits_200), *std::move(answer),
                                             *std::move(logits_201), *std::move(kv)});
}

void copy_kv(const KvSource& from, const KvTarget& to, uint32_t tokens) {
  const KvShape& shape = from.geometry->shape;
  const size_t element = dtype_bytes(shape.dtype);
  for (KvKind kind : kKvKinds) {
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (uint32_t token = 0; token < tokens; ++token) {
        for (uint32_t head = 0; head < shape.kv_heads; ++head) {
          for (uint32_t dim = 0; dim < shape.head_dim(kind); ++dim)
            std::memcpy(
                to.memory.data() + to.geometry->element_offset(kind, layer, token, head, dim),
                from.memory.data() + from.geometry->element_offset(kind, layer, token, head, dim),
                element);
        }
      }
    }
  }
}

}  // namespace kvcodec
