// SPDX-License-Identifier: Apache-2.0
#include "kvcodec/store.h"
#include "sealed_bytes.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

TEST(OpenStore, OpensMemory) {
  auto store = open_store("mem:", {.max_bytes = 10});
  ASSERT_TRUE(succeeds(store));
  EXPECT_TRUE(succeeds((*store)->put("a", to_bytes("0123456789"))));
  EXPECT_TRUE(fails_with((*store)->put("a", to_bytes("0123456789a")), ErrorCode::invalid_argument));
  auto other = open_store("mem:");
  ASSERT_TRUE(succeeds(other));
  EXPECT_TRUE(names_of(**other).empty());
}

TEST(OpenStore, OpensFolderAndCreatesIt) {
  const TempDir dir;
  const std::string uri = "file://" + (dir / "some/where/new");
  {
    auto store = open_store(uri, {.max_bytes = 10});
    ASSERT_TRUE(succeeds(store));
    EXPECT_TRUE(succeeds((*store)->put("a", to_bytes("kept"))));
    EXPECT_TRUE(
        fails_with((*store)->put("a", to_bytes("0123456789a")), ErrorCode::invalid_argument));
  }
  for (const char* suffix : {"", "/", "/../new"}) {
    auto store = open_store(uri + suffix);
    ASSERT_TRUE(succeeds(store));
    EXPECT_EQ(*get_object(**store, "a", 100), to_bytes("kept"));
  }
}

TEST(OpenStore, DecodesPercent) {
  const TempDir dir;
  ASSERT_TRUE(succeeds(open_store("file://" + (dir / "a%20b%2Fc%23%3f%25 d"))));
  EXPECT_TRUE(std::filesystem::is_directory(dir / "a b/c#?% d"));
}

TEST(OpenStore, RefusesWhatIsNoUri) {
  const auto refused = [](std::string_view uri, ErrorCode code, const std::string& text = {}) {
    return fails_with(open_store(uri), code, text);
  };
  for (const char* uri : {"", "/tmp/x", "relative", "mem"}) {
    EXPECT_TRUE(refused(uri, ErrorCode::invalid_argument, "no scheme")) << uri;
  }
  for (const char* uri : {"file:", "file:relative", "file:/one", "file://", "file://host/path",
                          "file://localhost/path"}) {
    EXPECT_TRUE(refused(uri, ErrorCode::invalid_argument, "file:///absolute/path")) << uri;
  }
  for (const char* uri : {"file:///a%", "file:///a%2", "file:///a%zz", "file:///a%00b"}) {
    EXPECT_TRUE(refused(uri, ErrorCode::invalid_argument, "two hexadecimal digits")) << uri;
  }
  EXPECT_TRUE(refused("file:///a?b=c", ErrorCode::invalid_argument));
  EXPECT_TRUE(refused("file:///a#b", ErrorCode::invalid_argument));
  EXPECT_TRUE(refused(std::string_view("file:///a\0b", 11), ErrorCode::invalid_argument));
  EXPECT_TRUE(refused("mem:x", ErrorCode::invalid_argument));
  EXPECT_TRUE(refused("mem://", ErrorCode::invalid_argument));
  for (const char* uri : {"ftp://host/x", "MEM:", "S3://x", ":x"}) {
    EXPECT_TRUE(refused(uri, ErrorCode::unsupported, "mem:, file:")) << uri;
  }
  EXPECT_FALSE(std::filesystem::exists("/a"));
}

}  // namespace
}  // namespace kvcodec
