// SPDX-License-Identifier: Apache-2.0
// The whole of a calibration with a real model, on very little text.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kvcodec/llama.h"
#include "unit/engines/code_of.h"

namespace kvcodec {
namespace {

std::string text_of(size_t begin, size_t bytes) {
  std::ifstream in("/usr/share/common-licenses/GPL-3", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  return all.substr(begin, bytes);
}

class CalibrateLlamaTest : public testing::Test {
 protected:
  static inline std::unique_ptr<CalibrationModel> model;
  static void TearDownTestSuite() { model.reset(); }

  void SetUp() override {
    const char* path = std::getenv("KVCODEC_TEST_MODEL");
    if (path == nullptr) GTEST_SKIP() << "KVCODEC_TEST_MODEL is not set";
    if (!model) {
      auto opened = open_llama_calibration(
          path, {.context_tokens = 256, .threads = 1, .batch_tokens = 64, .logit_tokens = 32});
      ASSERT_TRUE(opened.ok()) << opened.error().message;
      model = *std::move(opened);
    }
    options.group_layers = 1;
    options.window_tokens = 128;
    options.continuation_tokens = 16;
    options.sensitivity_texts = 2;
    options.kl = {0.02, 0.05, 0.3};  // a basis of so few tokens does no better soon
    options.threads = 1;
    options.state_path = testing::TempDir() + "kvcodec_calibrate_llama.state";
    std::filesystem::remove(options.state_path);
    for (size_t i = 0; i < 2; ++i)
      texts.push_back({"gpl-" + std::to_string(i), text_of(4000 + 2000 * i, 1500)});
    validation = {{"gpl-validation", text_of(20000, 1500)}};
  }
  void TearDown() override { std::filesystem::remove(options.state_path); }

  CalibrationOptions options;
  std::vector<CalibrationText> texts, validation;
};

TEST_F(CalibrateLlamaTest, MeetsItsTargetsAndGoesOnWhereItWasStopped) {
  std::vector<std::string> notes;
  options.note = [&](std::string_view note) { notes.emplace_back(note); };
  // Stopped before the second text.
  std::stop_source stop;
  options.stop = stop.get_token();
  options.progress = [&](std::string_view stage, size_t done, size_t) {
    if (stage == "measure" && done == 1) stop.request_stop();
  };
  const auto stopped = calibrate(*model, texts, validation, options);
  ASSERT_EQ(code_of(stopped), ErrorCode::cancelled);
  ASSERT_TRUE(std::filesystem::exists(options.state_path));
  EXPECT_TRUE(notes.empty()) << notes[0];  // no method but the best was taken

  options.stop = {};
  size_t first_done = SIZE_MAX;
  options.progress = [&](std::string_view stage, size_t done, size_t) {
    if (stage == "measure" && first_done == SIZE_MAX) first_done = done;
  };
  const auto result = calibrate(*model, texts, validation, options);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(first_done, 1u);
  ASSERT_EQ(notes.size(), 3u);  // and how far gradients of keys and of values were believed
  EXPECT_NE(notes[0].find("1 of 2 texts"), std::string::npos) << notes[0];

  const ProfileFields& fields = result->profile;
  EXPECT_EQ(fields.groups.size(), 2u * model->facts().shape.layers);
  EXPECT_EQ(fields.weights, model->facts().weights);
  for (size_t tier = 0; tier < 3; ++tier) {
    EXPECT_LE(fields.tiers[tier].kl, options.kl[tier] * 1.02) << tier;
    EXPECT_GT(fields.tiers[tier].kl, options.kl[tier] / 4) << tier;
    EXPECT_GT(fields.tiers[tier].bits_per_value, 0);
    if (tier > 0) {
      EXPECT_LT(fields.tiers[tier].bits_per_value, fields.tiers[tier - 1].bits_per_value);
    }
  }
  for (const ProfileGroup& group : fields.groups) EXPECT_TRUE(group.block_metric());
  const auto bytes = serialise_profile(fields);
  ASSERT_TRUE(bytes.ok());
  EXPECT_TRUE(Profile::parse(*bytes).ok());
}

TEST_F(CalibrateLlamaTest, TooLittleTextIsRefusedWithWhatIsNeeded) {
  options.group_layers = 0;
  const auto result = calibrate(*model, texts, validation, options);
  ASSERT_EQ(code_of(result), ErrorCode::invalid_argument);
  EXPECT_NE(result.error().message.find("248 tokens in 2 texts"), std::string::npos)
      << result.error().message;
  const auto estimate = estimate_calibration(*model, texts, validation, options);
  ASSERT_TRUE(estimate.ok());
  EXPECT_LT(estimate->tokens, estimate->tokens_needed);
  EXPECT_GT(estimate->seconds, 0);
  EXPECT_NE(result.error().message.find(std::to_string(estimate->tokens_needed)),
            std::string::npos);
}

TEST_F(CalibrateLlamaTest, ValidationTextsAreNeededAndMayNotBeCalibratedOn) {
  EXPECT_EQ(code_of(calibrate(*model, texts, {}, options)), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(calibrate(*model, texts, texts, options)), ErrorCode::invalid_argument);
}

TEST_F(CalibrateLlamaTest, OptionsThatMakeNoSenseAreRefused) {
  for (const auto& spoil : std::vector<std::function<void(CalibrationOptions&)>>{
           [](auto& o) { o.window_tokens = 8; }, [](auto& o) { o.window_tokens = 1000; },
           [](auto& o) { o.dead_zone = 0.2; },
           [](auto& o) {
             o.kl = {0.1, 0.05, 0.2};
           },
           [](auto& o) { o.sink_tokens = 100; }, [](auto& o) { o.continuation_tokens = 0; }}) {
    CalibrationOptions spoilt = options;
    spoil(spoilt);
    EXPECT_EQ(code_of(calibrate(*model, texts, validation, spoilt)), ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace kvcodec
