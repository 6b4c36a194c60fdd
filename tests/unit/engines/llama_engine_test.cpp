// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stop_token>

#include "unit/engines/llama_fixture.h"

namespace kvcodec {
namespace {

TEST_F(LlamaTest, KnowsTheModel) {
  const KvShape& shape = a().shape();
  EXPECT_GT(shape.layers, 0u);
  EXPECT_EQ(shape.dtype, DType::f16);
  EXPECT_EQ(a().context_tokens(), 512u);
  EXPECT_EQ(b().context_tokens(), 768u);
  EXPECT_EQ(a().batch_tokens(), kBatch);
  EXPECT_FALSE(a().model_name().empty());
  const auto weights = sha256_file(shared().path);
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(a().weights_digest(), *weights);
  EXPECT_EQ(a().rope().style == Rope::Style::none, !a().rope_note().empty());
}

TEST_F(LlamaTest, KnowsTheRotationOfSmolLM2) {
  if (a().model_name().find("mollm2 135M") == std::string::npos)
    GTEST_SKIP() << "figures are those of SmolLM2-135M, not of " << a().model_name();
  EXPECT_EQ(a().shape(), (KvShape{30, 3, 64, 64, DType::f16}));
  EXPECT_EQ(a().rope_note(), "");
  const auto rope = make_rope(Rope::Style::interleaved, 64, 100000);
  ASSERT_TRUE(rope.ok());
  EXPECT_EQ(a().rope(), *rope);
}

TEST_F(LlamaTest, NamespacesSeparateWhatIsIncompatible) {
  const Digest own = namespace_digest(a().namespace_fields());
  EXPECT_EQ(namespace_digest(b().namespace_fields()), own);
  EXPECT_NE(namespace_digest(a().namespace_fields("tenant")), own);
  const NamespaceFields fields = a().namespace_fields("tenant");
  EXPECT_EQ(fields.salt, "tenant");
  EXPECT_EQ(fields.shape, a().shape());
  EXPECT_EQ(fields.weights, a().weights_digest());
  EXPECT_EQ(fields.rope, a().rope());
}

TEST_F(LlamaTest, TurnsTextIntoTokensAndBack) {
  const std::string text = "Two rivers, and a bridge: caf\xc3\xa9 <|im_start|> 42.";
  const auto tokens = a().tokenize(text, {.add_special = false});
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  const auto back = a().detokenize(*tokens);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, text);
  EXPECT_TRUE(a().tokenize("", {.add_special = false})->empty());
  EXPECT_EQ(code_of(a().detokenize(std::vector<int32_t>{-1})), ErrorCode::invalid_argument);
  EXPECT_FALSE(a().ends_generation(-1));
  // Shorter than 4 bytes a token, so that the first guess of the size is too small.
  const std::string digits(400, '7');
  EXPECT_EQ(*a().detokenize(*a().tokenize(digits, {.add_special = false})), digits);
}

TEST_F(LlamaTest, ReadsSpecialTokensOnlyWhereTrusted) {
  const auto plain = a().tokenize("<|im_start|>", {.add_special = false});
  const auto special = a().tokenize("<|im_start|>", {.add_special = false, .parse_special = true});
  ASSERT_TRUE(plain.ok() && special.ok());
  if (special->size() != 1) GTEST_SKIP() << "the model has no <|im_start|> token";
  EXPECT_GT(plain->size(), 1u);
  EXPECT_EQ(*a().detokenize(*special), "");
  EXPECT_EQ(*a().detokenize(*special, true), "<|im_start|>");
}

TEST_F(LlamaTest, PrefillsInFixedBatches) {
  std::vector<size_t> steps;
  const auto note = [&](size_t done, size_t total) {
    EXPECT_EQ(total, 24u);
    steps.push_back(done);
  };
  ASSERT_TRUE(b().prefill(text(0, 24), note).ok());
  EXPECT_EQ(steps, (std::vector<size_t>{16, 24}));
  EXPECT_EQ(b().position(), 24u);
  // What came after the border does not change what is before it.
  ASSERT_TRUE(b().truncate(kBatch).ok());
  EXPECT_EQ(b().position(), kBatch);
  EXPECT_EQ(code_of(b().logits()), ErrorCode::invalid_argument);
  ASSERT_TRUE(b().prefill(text(kBatch, kBatch)).ok());
  EXPECT_EQ(*b().logits(), shared().logits_32);
}

TEST_F(LlamaTest, DecodesTheMostLikelyTokens) {
  ASSERT_TRUE(a().prefill(text(0, kBatch)).ok());
  const auto& logits = shared().logits_16;
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  std::vector<int32_t> seen;
  const auto tokens = a().greedy_decode(4, [&](int32_t token) {
    seen.push_back(token);
    return seen.size() < 3;
  });
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  ASSERT_FALSE(tokens->empty());
  EXPECT_EQ(tokens->front(), best);
  EXPECT_EQ(*tokens, seen);
  EXPECT_LE(tokens->size(), 3u);
  EXPECT_EQ(a().position(), kBatch + tokens->size());
}

TEST_F(LlamaTest, ScoresEveryToken) {
  LlamaOptions wide = options(512);
  wide.logit_tokens = 8;
  wide.weights = a().weights_digest();
  auto engine = LlamaEngine::open(shared().path, wide);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  ASSERT_TRUE(engine->prefill(text(0, kBatch)).ok());
  std::vector<std::vector<float>> logits;
  const auto keep = [&](size_t index, std::span<const float> values) {
    EXPECT_EQ(index, logits.size());
    logits.emplace_back(values.begin(), values.end());
  };
  ASSERT_TRUE(engine->score(text(kBatch, kBatch + 4), keep).ok());
  ASSERT_EQ(logits.size(), size_t{kBatch + 4});
  EXPECT_EQ(engine->position(), 2 * kBatch + 4);
  EXPECT_EQ(*engine->logits(), logits.back());

  // Each is what prefill up to that token gives, where batches end alike.
  engine->reset();
  ASSERT_TRUE(engine->prefill(text(0, kBatch)).ok());
  ASSERT_TRUE(engine->prefill(text(kBatch, 8)).ok());
  EXPECT_EQ(*engine->logits(), logits[7]);
  ASSERT_TRUE(engine->prefill(text(kBatch + 8, 8)).ok());
  EXPECT_EQ(*engine->logits(), logits[15]);
  EXPECT_NE(logits[7], logits[15]);
}

TEST_F(LlamaTest, ScoreRefusesWhatPrefillRefuses) {
  const auto never = [](size_t, std::span<const float>) { FAIL(); };
  EXPECT_EQ(code_of(a().score({}, never)), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(a().score(std::vector<int32_t>(513, 1), never)), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(a().score(std::vector<int32_t>{1, -1}, never)), ErrorCode::invalid_argument);
  EXPECT_EQ(a().position(), 0u);
  LlamaOptions none = options(512);
  none.logit_tokens = 0;
  EXPECT_EQ(code_of(LlamaEngine::open(shared().path, none)), ErrorCode::invalid_argument);
}

TEST_F(LlamaTest, RefusesWrongCalls) {
  EXPECT_EQ(code_of(a().logits()), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(a().greedy_decode(1)), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(a().export_kv()), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(a().truncate(1)), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(a().prefill({})), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(a().prefill(std::vector<int32_t>(513, 1))), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(a().greedy_decode(513)), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(a().prefill(std::vector<int32_t>{1, -1})), ErrorCode::invalid_argument);
  const auto large = a().prefill(std::vector<int32_t>{1, INT32_MAX});
  EXPECT_NE(large.error().message.find("token 2147483647 at index 1"), std::string::npos);
  EXPECT_EQ(a().position(), 0u);
}

TEST_F(LlamaTest, StopsWhereAsked) {
  std::stop_source before;
  before.request_stop();
  EXPECT_EQ(code_of(a().prefill(text(0, 16), {}, before.get_token())), ErrorCode::cancelled);
  EXPECT_EQ(a().position(), 0u);

  // After the first of two batches: the sequence goes back to where the call found it.
  ASSERT_TRUE(a().prefill(text(0, kBatch)).ok());
  std::stop_source within;
  const auto stop_after_first = [&](size_t, size_t) { within.request_stop(); };
  const auto status = a().prefill(text(kBatch, 24), stop_after_first, within.get_token());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(code_of(status), ErrorCode::cancelled);
  EXPECT_EQ(a().position(), kBatch);
  ASSERT_TRUE(a().prefill(text(kBatch, kBatch)).ok());
  EXPECT_EQ(*a().logits(), shared().logits_32);
}

TEST_F(LlamaTest, NamesWhyAFileCannotBeOpened) {
  const auto missing = LlamaEngine::open("/nonexistent/model.gguf");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(code_of(missing), ErrorCode::not_found);

  const std::string path = testing::TempDir() + "/kvcodec_broken_model.gguf";
  std::ofstream(path) << "GGUF, but only by name";
  auto broken = LlamaEngine::open(path);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(code_of(broken), ErrorCode::corrupt);
  EXPECT_NE(broken.error().message.find(path), std::string::npos);

  // A real file that ends early: its header is whole, its tensors are not.
  std::vector<char> head(std::filesystem::file_size(shared().path) * 3 / 4);
  std::ifstream(shared().path, std::ios::binary)
      .read(head.data(), static_cast<std::streamsize>(head.size()));
  std::ofstream(path, std::ios::binary)
      .write(head.data(), static_cast<std::streamsize>(head.size()));
  broken = LlamaEngine::open(path);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(code_of(broken), ErrorCode::corrupt);
  EXPECT_EQ(broken.error().message.find("no reason given"), std::string::npos)
      << broken.error().message;
  std::filesystem::remove(path);

  EXPECT_EQ(code_of(LlamaEngine::open(shared().path, {.batch_tokens = 0})),
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace kvcodec
