// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <utility>

#include "unit/engines/llama_fixture.h"

namespace kvcodec {
namespace {

// A restore target filled from `kv` by way of a contiguous buffer, as a store would have it.
Result<LlamaKv> through_contiguous(const LlamaEngine& engine, const LlamaKv& kv, uint32_t tokens) {
  const KvGeometry contiguous = KvGeometry::contiguous(kv.source().geometry->shape, tokens);
  std::vector<std::byte> buffer(contiguous.contiguous_bytes());
  copy_kv(kv.source(), {buffer, &contiguous}, tokens);
  KVCODEC_TRY(LlamaKv out, engine.prepare_restore(tokens));
  copy_kv({buffer, &contiguous}, out.target(), tokens);
  return out;
}

TEST_F(LlamaTest, ExportsEveryToken) {
  const KvSource source = shared().kv.source();
  EXPECT_EQ(shared().kv.tokens(), kTokens);
  EXPECT_EQ(source.geometry->shape, a().shape());
  EXPECT_TRUE(source.geometry->validate(source.memory.size()).ok());
}

TEST_F(LlamaTest, RestoresAWholePrefixToTheBit) {
  ASSERT_GE(shared().answer.size(), 2u);
  auto kv = through_contiguous(b(), shared().kv, kTokens);
  ASSERT_TRUE(kv.ok());
  ASSERT_TRUE(b().commit_restore(*std::move(kv), kTokens).ok());
  EXPECT_EQ(b().position(), kTokens);
  EXPECT_EQ(code_of(b().logits()), ErrorCode::invalid_argument);

  ASSERT_TRUE(b().prefill(std::span(shared().answer).first(1)).ok());
  EXPECT_EQ(*b().logits(), shared().logits_201);
  const auto rest = b().greedy_decode(kAnswer - 1);
  ASSERT_TRUE(rest.ok());
  EXPECT_EQ(*rest, std::vector<int32_t>(shared().answer.begin() + 1, shared().answer.end()));
}

TEST_F(LlamaTest, RestoresPartOfAPrefixToTheBit) {
  auto kv = through_contiguous(b(), shared().kv, kTokens);
  ASSERT_TRUE(kv.ok());
  ASSERT_TRUE(b().commit_restore(*std::move(kv), kPrefix).ok());
  EXPECT_EQ(b().position(), kPrefix);
  ASSERT_TRUE(b().prefill(text(kPrefix, kTokens - kPrefix)).ok());
  EXPECT_EQ(*b().logits(), shared().logits_200);
  // What the recomputed part exports is what was exported first.
  const auto again = b().export_kv();
  ASSERT_TRUE(again.ok());
  ASSERT_EQ(again->source().memory.size(), shared().kv.source().memory.size());
  EXPECT_EQ(std::memcmp(again->source().memory.data(), shared().kv.source().memory.data(),
                        again->source().memory.size()),
            0);
}

TEST_F(LlamaTest, RestoreReplacesWhatWasThere) {
  ASSERT_TRUE(b().prefill(text(100, 20)).ok());
  auto kv = through_contiguous(b(), shared().kv, kBatch);
  ASSERT_TRUE(kv.ok());
  ASSERT_TRUE(b().commit_restore(*std::move(kv), kBatch).ok());
  ASSERT_TRUE(b().prefill(text(kBatch, kBatch)).ok());
  EXPECT_EQ(*b().logits(), shared().logits_32);
  auto nothing = b().prepare_restore(8);
  ASSERT_TRUE(nothing.ok());
  ASSERT_TRUE(b().commit_restore(*std::move(nothing), 0).ok());
  EXPECT_EQ(b().position(), 0u);
}

TEST_F(LlamaTest, RestoresEveryElementType) {
  for (DType dtype : {DType::bf16, DType::f32}) {
    LlamaOptions settings = options(256);
    settings.kv_dtype = dtype;
    settings.weights = a().weights_digest();
    auto engine = LlamaEngine::open(shared().path, settings);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    EXPECT_EQ(engine->shape().dtype, dtype);
    EXPECT_EQ(engine->rope(), a().rope());
    EXPECT_NE(namespace_digest(engine->namespace_fields()),
              namespace_digest(a().namespace_fields()));
    ASSERT_TRUE(engine->prefill(text(0, 8)).ok());
    auto exported = engine->export_kv();
    ASSERT_TRUE(exported.ok());
    auto kv = through_contiguous(*engine, *exported, 8);
    ASSERT_TRUE(kv.ok());
    ASSERT_TRUE(engine->prefill(text(8, 1)).ok());
    const auto logits = engine->logits();
    ASSERT_TRUE(engine->commit_restore(*std::move(kv), 8).ok());
    ASSERT_TRUE(engine->prefill(text(8, 1)).ok());
    EXPECT_EQ(*engine->logits(), *logits);

    // The cache of another type is another shape.
    const Status refused = a().commit_restore(*std::move(exported), 8);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(code_of(refused), ErrorCode::invalid_argument);
    EXPECT_EQ(a().position(), 0u);
  }
}

TEST_F(LlamaTest, RefusesRestoresThatDoNotFit) {
  EXPECT_EQ(code_of(a().prepare_restore(0)), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(a().prepare_restore(513)), ErrorCode::invalid_argument);
  auto kv = a().prepare_restore(8);
  ASSERT_TRUE(kv.ok());
  EXPECT_EQ(code_of(a().commit_restore(*std::move(kv), 9)), ErrorCode::invalid_argument);
  // Room in b, none in a.
  auto large = b().prepare_restore(600);
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(code_of(a().commit_restore(*std::move(large), 600)), ErrorCode::invalid_argument);
}

TEST_F(LlamaTest, AnswersRightAfterACorruptRestore) {
  struct Damage {
    size_t offset;
    uint32_t value;
    ErrorCode code;
  };
  // magic, n_stream, cell count, position of the last of 8 cells, v_trans, type of the first layer
  for (const Damage& damage :
       {Damage{0, 0x67677371, ErrorCode::corrupt}, Damage{8, 2, ErrorCode::unsupported},
        Damage{12, UINT32_MAX, ErrorCode::corrupt}, Damage{12, 7, ErrorCode::corrupt},
        Damage{16 + 7 * 12, 9, ErrorCode::unsupported},
        Damage{16 + 8 * 12, 1, ErrorCode::unsupported},
        Damage{16 + 8 * 12 + 8, 8, ErrorCode::unsupported}}) {
    ASSERT_TRUE(b().prefill(text(0, 1)).ok());
    auto kv = b().prepare_restore(8);
    ASSERT_TRUE(kv.ok());
    std::memcpy(kv->target().memory.data() + damage.offset, &damage.value, sizeof damage.value);
    const Status status = b().commit_restore(*std::move(kv), 8);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(code_of(status), damage.code) << status.error().message;
    EXPECT_EQ(b().position(), 0u);
  }
  ASSERT_TRUE(b().prefill(text(0, kBatch)).ok());
  EXPECT_EQ(*b().logits(), shared().logits_16);
}

// Attention reads tiles of 64 cells, so a batch of 80 also reads cells that it does not use; what
// a restore left in them must be gone.
TEST_F(LlamaTest, AnswersRightAfterNotANumber) {
  constexpr uint32_t kWide = 80;
  LlamaOptions wide = options(256);
  wide.batch_tokens = kWide;
  wide.weights = a().weights_digest();
  auto engine = LlamaEngine::open(shared().path, wide);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  ASSERT_TRUE(engine->prefill(text(0, kWide)).ok());
  const auto clean = engine->logits();

  auto kv = engine->prepare_restore(kTokens);
  ASSERT_TRUE(kv.ok());
  const KvTarget target = kv->target();
  for (KvKind kind : kKvKinds) {
    const auto& strides = target.geometry->strides(kind);
    for (uint32_t layer = 0; layer < engine->shape().layers; ++layer)
      std::memset(target.memory.data() + strides.offset + layer * strides.layer, 0xff,
                  kTokens * strides.token);
  }
  ASSERT_TRUE(engine->commit_restore(*std::move(kv), kTokens).ok());
  engine->reset();
  ASSERT_TRUE(engine->prefill(text(0, kWide)).ok());
  EXPECT_EQ(*engine->logits(), *clean);
}

TEST_F(LlamaTest, SurvivesGarbage) {
  std::mt19937 random(11);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 200; ++round) {
    auto kv = b().prepare_restore(4);
    ASSERT_TRUE(kv.ok());
    const auto memory = kv->target().memory;
    // Most of the state is rows: aim half of the rounds at the 76 bytes before the first.
    const size_t reach = round % 2 == 0 ? 76 : memory.size();
    for (int i = 0; i <= round % 3; ++i)
      memory[random() % reach] = static_cast<std::byte>(random());
    if (b().commit_restore(*std::move(kv), 4).ok()) {
      EXPECT_EQ(b().position(), 4u);
      ++accepted;
    } else {
      EXPECT_EQ(b().position(), 0u);
      ++refused;
    }
  }
  EXPECT_GT(accepted, 30);
  EXPECT_GT(refused, 30);
  b().reset();
  ASSERT_TRUE(b().prefill(text(0, kBatch)).ok());
  EXPECT_EQ(*b().logits(), shared().logits_16);
}

}  // namespace
}  // namespace kvcodec
