// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibration_state.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "calibrate/kv_rows.h"
#include "unit/codec/codec_cases.h"
#include "unit/engines/code_of.h"

namespace kvcodec::calibration {
namespace {

class CalibrationStateTest : public testing::Test {
 protected:
  const testing_codec::Cache cache_ = testing_codec::real_cache();
  const KvShape shape_ = cache_.geometry.shape;
  const std::vector<GroupPlace> groups_ = plan_groups(shape_, {});
  const Digest inputs_ = sha256(std::as_bytes(std::span("texts")));
  const std::string path_ = testing::TempDir() + "kvcodec_calibration.state";

  void SetUp() override { std::filesystem::remove(path_); }
  void TearDown() override { std::filesystem::remove(path_); }

  CalibrationState some_state() const {
    CalibrationState state(inputs_, shape_, groups_);
    state.windows_done = 7;
    state.gradients = true;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const GroupPlace& place = groups_[g];
      const auto rows = unrotated_rows(cache_.source(), place.kind, place.first_layer, place.layers,
                                       {4, 32}, testing_codec::real_rope());
      state.moments[g].add(rows->data(), 32, state.moments[g].channels());
      if (place.first_layer == 0)
        state.costs[static_cast<size_t>(place.kind)].add(0, rows->data(), 32);
      if (place.first_layer == 0) state.costs[3].add(1, rows->data(), 16);
      if (place.kind == KvKind::key) state.queries.add(0, rows->data(), 8);
    }
    state.costs[0].count(32);
    state.queries.count(5);
    state.injected.costs[1] = {0.5, 0.25};
    state.points = {{1, 0.01, 0.8}, {2, 0.05, 0.3}};
    return state;
  }
};

TEST_F(CalibrationStateTest, ComesBackWhole) {
  const CalibrationState saved = some_state();
  ASSERT_TRUE(save_state(path_, saved).ok());
  CalibrationState loaded(inputs_, shape_, groups_);
  const auto found = load_state(path_, loaded);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_TRUE(*found);
  EXPECT_EQ(loaded.windows_done, saved.windows_done);
  EXPECT_EQ(loaded.gradients, saved.gradients);
  for (size_t g = 0; g < groups_.size(); ++g)
    EXPECT_EQ(loaded.moments[g].covariance(), saved.moments[g].covariance());
  EXPECT_EQ(loaded.costs[0].sums(), saved.costs[0].sums());
  EXPECT_EQ(loaded.costs[3].sums(), saved.costs[3].sums());
  EXPECT_EQ(loaded.queries.sums(), saved.queries.sums());
  EXPECT_EQ(loaded.queries.tokens(), 5u);
  EXPECT_EQ(loaded.costs[0].tokens(), 32u);
  EXPECT_EQ(loaded.injected.costs[1], saved.injected.costs[1]);
  ASSERT_EQ(loaded.points.size(), 2u);
  EXPECT_EQ(loaded.points[1].kl, 0.05);
}

TEST_F(CalibrationStateTest, OfOtherInputsOrAbsentIsNotUsed) {
  CalibrationState other(Digest{}, shape_, groups_);
  EXPECT_FALSE(*load_state(path_, other));
  ASSERT_TRUE(save_state(path_, some_state()).ok());
  EXPECT_FALSE(*load_state(path_, other));
  EXPECT_EQ(other.windows_done, 0u);
}

TEST_F(CalibrationStateTest, DamagedIsRefusedAtEveryLengthAndByte) {
  ASSERT_TRUE(save_state(path_, some_state()).ok());
  std::ifstream in(path_, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  const auto write = [this](const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
  };
  for (size_t part = 1; part < 16; ++part) {
    CalibrationState state(inputs_, shape_, groups_);
    write(whole.substr(0, whole.size() * part / 16));
    EXPECT_EQ(code_of(load_state(path_, state)), ErrorCode::corrupt) << part;
    std::string flipped = whole;
    flipped[60 + (whole.size() - 60) * part / 16] ^= 0x10;
    write(flipped);
    EXPECT_EQ(code_of(load_state(path_, state)), ErrorCode::corrupt) << part;
    EXPECT_EQ(state.windows_done, 0u);
  }
  write("not a state");
  CalibrationState state(inputs_, shape_, groups_);
  EXPECT_EQ(code_of(load_state(path_, state)), ErrorCode::corrupt);
}

}  // namespace
}  // namespace kvcodec::calibration
