// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "transform/float_convert.h"
#include "unit/engines/llama_fixture.h"
#include "unit/profile/test_profiles.h"

// The whole way: an engine's cache into a store as chunks, and from there into another engine.
namespace kvcodec {
namespace {

constexpr uint32_t kChunk = 64, kWhole = 192;  // of the 200 tokens

// A store between the two engines of the fixture.
class Between {
 public:
  void publish(Tier tier) {
    store_ = *open_store("mem:");
    ns_ = namespace_digest(LlamaTest::a().namespace_fields());
    PublishOptions options;
    options.encode.tier = tier;
    options.encode.rope = LlamaTest::a().rope();
    options.chunk_tokens = kChunk;
    const auto report =
        publish_prefix(*store_, ns_, text(), LlamaTest::shared().kv.source(), options);
    ASSERT_TRUE(report.ok()) << report.error().message;
    ASSERT_EQ(report->chunks, kWhole / kChunk);
  }

  // Restores what the store has into b and computes the rest.
  void answer(Tier tier, uint32_t expected_match, uint32_t expected_tokens) {
    const std::string rendition = tier_name(tier);
    const auto match = match_prefix(*store_, ns_, text(), rendition, kChunk);
    ASSERT_TRUE(match.ok()) << match.error().message;
    ASSERT_EQ(*match, expected_match);
    auto kv = LlamaTest::b().prepare_restore(*match);
    ASSERT_TRUE(kv.ok());
    FetchOptions options;
    options.rendition = rendition;
    options.chunk_tokens = kChunk;
    options.max_tokens = *match;
    const auto report = fetch_prefix(*store_, ns_, text(), kv->target(), options);
    ASSERT_TRUE(report.ok()) << report.error().message;
    ASSERT_EQ(report->tokens_restored, expected_tokens);
    ASSERT_TRUE(LlamaTest::b().commit_restore(*std::move(kv), report->tokens_restored).ok());
    ASSERT_TRUE(LlamaTest::b()
                    .prefill(LlamaTest::text(expected_tokens, LlamaTest::kTokens - expected_tokens))
                    .ok());
  }

  Store& store() { return *store_; }
  std::string name_of(size_t chunk) const {
    return object_name(ns_, chunk_keys(ns_, text(), kChunk)[chunk], tier_name(Tier::exact));
  }

 private:
  static std::span<const int32_t> text() { return LlamaTest::shared().text; }

  std::unique_ptr<Store> store_;
  Digest ns_;
};

// A key of layer 0.
double value_of(std::span<const std::byte> memory, const KvGeometry& geometry, uint32_t token,
                uint32_t head, uint32_t dim) {
  float value = 0;
  transform::to_floats(geometry.shape.dtype,
                       memory.data() + geometry.element_offset(KvKind::key, 0, token, head, dim), 1,
                       &value);
  return value;
}

// Of the next token, of `other` against `reference`, in nats.
double divergence(const std::vector<float>& reference, const std::vector<float>& other) {
  const auto log_sum = [](const std::vector<float>& logits) {
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (float logit : logits) sum += std::exp(logit - top);
    return top + std::log(sum);
  };
  const double p_sum = log_sum(reference), q_sum = log_sum(other);
  double out = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double p = reference[i] - p_sum, q = other[i] - q_sum;
    out += std::exp(p) * (p - q);
  }
  return out;
}

TEST_F(LlamaTest, ExactChunksRestoreToTheBit) {
  Between between;
  between.publish(Tier::exact);
  between.answer(Tier::exact, kWhole, kWhole);
  EXPECT_EQ(*b().logits(), shared().logits_200);
}

TEST_F(LlamaTest, Int8ChunksRestoreClosely) {
  Between between;
  between.publish(Tier::int8);
  between.answer(Tier::int8, kWhole, kWhole);
  const auto logits = b().logits();
  ASSERT_TRUE(logits.ok());
  EXPECT_NE(*logits, shared().logits_200);
  EXPECT_LT(std::abs(divergence(shared().logits_200, *logits)), 0.01);
}

// Keys of layer 0 depend on a token and its position only. So the engine itself says what they are
// at another position, and a chunk restored there must agree.
TEST_F(LlamaTest, AChunkMovesToAnotherPosition) {
  const KvShape& shape = a().shape();
  const Profile calibrated = testing_profile::random_profile(shape, a().rope(), {1, 1, false});
  std::vector<int32_t> moved(text(0, 40).begin(), text(0, 40).end());
  const auto chunk_text = text(kChunk, kChunk);
  moved.insert(moved.end(), chunk_text.begin(), chunk_text.end());
  ASSERT_TRUE(b().prefill(moved).ok());
  const auto want = b().export_kv();
  ASSERT_TRUE(want.ok());
  for (Tier tier : {Tier::int8, Tier::high}) {
    SCOPED_TRACE(tier_name(tier));
    EncodeOptions options;
    options.tier = tier;
    options.rope = a().rope();
    options.profile = &calibrated;
    options.noise_factor = 0;
    ChunkId id;
    id.first_token = kChunk;
    const auto object = encode_chunk(shared().kv.source(), {kChunk, kChunk}, id, options);
    ASSERT_TRUE(object.ok()) << object.error().message;
    const KvGeometry geometry = KvGeometry::contiguous(shape, kChunk);
    std::vector<std::byte> memory(geometry.contiguous_bytes());
    DecodeOptions decode;
    decode.profile = &calibrated;
    double worst[2] = {0, 0}, peak = 0;  // at the right position, and at the old one
    for (const uint32_t position : {40u, kChunk}) {
      decode.position = position;
      const Status restored = decode_chunk(*object, {memory, &geometry}, 0, decode);
      ASSERT_TRUE(restored.ok()) << restored.error().message;
      for (uint32_t token = 0; token < kChunk; ++token) {
        for (uint32_t head = 0; head < shape.kv_heads; ++head) {
          for (uint32_t dim = 0; dim < shape.key_dim; ++dim) {
            const double have = value_of(memory, geometry, token, head, dim);
            const KvSource& engine = want->source();
            const double exact = value_of(engine.memory, *engine.geometry, 40 + token, head, dim);
            peak = std::max(peak, std::abs(exact));
            double& most = worst[position == 40 ? 0 : 1];
            most = std::max(most, std::abs(have - exact));
          }
        }
      }
    }
    EXPECT_LT(worst[0], 0.05 * peak);
    EXPECT_GT(worst[1], 0.3 * peak) << "keys that were not moved would be found";
  }
}

TEST_F(LlamaTest, RecomputesFromAFaultyChunkOn) {
  Between between;
  between.publish(Tier::exact);
  const std::string name = between.name_of(1);
  auto object = get_object(between.store(), name, 1u << 30);
  ASSERT_TRUE(object.ok());
  (*object)[object->size() / 2] ^= std::byte{1};
  ASSERT_TRUE(between.store().put(name, *object).ok());
  between.answer(Tier::exact, kWhole, kChunk);
  EXPECT_EQ(*b().logits(), shared().logits_200);
}

TEST_F(LlamaTest, AnswersWithoutAMissingChunk) {
  Between between;
  between.publish(Tier::exact);
  ASSERT_TRUE(between.store().remove(between.name_of(2)).ok());
  between.answer(Tier::exact, 2 * kChunk, 2 * kChunk);
  EXPECT_EQ(*b().logits(), shared().logits_200);
}

}  // namespace
}  // namespace kvcodec
