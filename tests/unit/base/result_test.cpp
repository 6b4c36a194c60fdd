// SPDX-License-Identifier: Apache-2.0
#include "kvcodec/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/error.h"

namespace kvcodec {
namespace {

TEST(Result, HoldsAValueOrAnError) {
  Result<std::string> good(std::string("value"));
  EXPECT_TRUE(good.ok());
  EXPECT_TRUE(static_cast<bool>(good));
  EXPECT_EQ(*good, "value");
  EXPECT_EQ(good->size(), 5u);
  *good += "!";
  EXPECT_EQ(*std::as_const(good), "value!");

  const Result<std::string> bad(Error{ErrorCode::corrupt, "reason"});
  EXPECT_FALSE(bad.ok());
  EXPECT_FALSE(static_cast<bool>(bad));
  EXPECT_EQ(bad.error().code, ErrorCode::corrupt);
  EXPECT_EQ(bad.error().message, "reason");
  EXPECT_TRUE(ok_status().ok());
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

Result<int> half_of(int value) {
  if (value % 2 != 0) return make_error(ErrorCode::invalid_argument, "{} is odd", value);
  return value / 2;
}

Result<int> quarter_of(int value, int& reached) {
  KVCODEC_TRY(const int half, half_of(value));
  reached = 1;
  int quarter = 0;
  KVCODEC_TRY(quarter, half_of(half));
  reached = 2;
  return quarter;
}

TEST(KvcodecTry, BindsOrReturnsTheError) {
  int reached = 0;
  EXPECT_EQ(*quarter_of(12, reached), 3);
  EXPECT_EQ(reached, 2);
  reached = 0;
  EXPECT_EQ(quarter_of(6, reached).error().message, "3 is odd");
  EXPECT_EQ(reached, 1);
  reached = 0;
  EXPECT_EQ(quarter_of(5, reached).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(reached, 0);
}

Status check_all(bool braces, int value, int& calls) {
  const auto call = [&]() -> Result<int> {
    ++calls;
    return half_of(value);
  };
  if (braces)
    KVCODEC_CHECK(call());
  else
    KVCODEC_CHECK(call());
  return ok_status();
}

TEST(KvcodecCheck, ReturnsTheErrorAndIsOneStatement) {
  int calls = 0;
  EXPECT_TRUE(check_all(true, 2, calls).ok());
  EXPECT_TRUE(check_all(false, 2, calls).ok());
  EXPECT_EQ(calls, 2) << "evaluated once each";
  EXPECT_EQ(check_all(true, 3, calls).error().message, "3 is odd");
}

// Numbers and names are part of the ABI, of exit codes and of JSON.
TEST(ErrorCode, IsPinned) {
  const struct {
    ErrorCode code;
    int value;
    const char* name;
  } expected[] = {{ErrorCode::invalid_argument, 1, "invalid_argument"},
                  {ErrorCode::not_found, 2, "not_found"},
                  {ErrorCode::corrupt, 3, "corrupt"},
                  {ErrorCode::unsupported, 4, "unsupported"},
                  {ErrorCode::unavailable, 5, "unavailable"},
                  {ErrorCode::io, 6, "io"},
                  {ErrorCode::out_of_memory, 7, "out_of_memory"},
                  {ErrorCode::device, 8, "device"},
                  {ErrorCode::internal, 9, "internal"},
                  {ErrorCode::cancelled, 10, "cancelled"}};
  for (const auto& [code, value, name] : expected) {
    EXPECT_EQ(static_cast<int>(code), value);
    EXPECT_STREQ(error_code_name(code), name);
  }
  EXPECT_STREQ(error_code_name(static_cast<ErrorCode>(0)), "unknown");
}

}  // namespace
}  // namespace kvcodec
