// SPDX-License-Identifier: Apache-2.0
#include "store/store_uri.h"

#include "store_kinds.h"

namespace kvcodec {
namespace {

TEST(StoreUri, SplitsIntoParts) {
  const auto uri = parse_store_uri("redis://us%40er:p%3Aw@[::1]:6380/2?ttl=60&prefix=a%26b&x");
  ASSERT_TRUE(succeeds(uri));
  EXPECT_EQ(uri->scheme, "redis");
  EXPECT_EQ(uri->user, "us@er");
  EXPECT_EQ(uri->password, "p:w");
  EXPECT_EQ(uri->host, "::1");
  EXPECT_EQ(uri->port, 6380);
  EXPECT_EQ(uri->path, "/2");
  using Param = std::pair<std::string, std::string>;
  EXPECT_EQ(uri->params, (std::vector<Param>{{"ttl", "60"}, {"prefix", "a&b"}, {"x", ""}}));
}

TEST(StoreUri, RefusesWhatIsMalformed) {
  for (const char* uri : {"x://h:0/", "x://h:65536/", "x://h:abc/", "x://[::1/", "x://h/%", "x:%zz",
                          "x://h/?a=%0", "x:a#b", "noscheme", ""}) {
    EXPECT_TRUE(fails_with(parse_store_uri(uri), ErrorCode::invalid_argument, "store URI")) << uri;
  }
}

// Nothing that a message shows of a URI may hold a secret, quoted as it should be or not.
TEST(StoreUri, RedactsSecrets) {
  const std::pair<const char*, const char*> cases[] = {
      {"redis://host:1/2?ttl=5", "redis://host:1/2?ttl=5"},
      {"redis://user@host", "redis://user:***@host"},
      {"redis://user:SECRET@host/1", "redis://user:***@host/1"},
      {"rediss://:SECRET@host", "rediss://:***@host"},
      {"redis://:SEC/RET@host", "redis://:***@host"},
      {"redis://:SEC?RET@host?ttl=1", "redis://:***@host?ttl=1"},
      {"redis://:SEC@RET@host", "redis://:***@host"},
      {"redis://:SECRET#@host", "redis://:***@host"},
      {"https://cdn/x?X-Amz-Signature=SECRET&sig=SECRET",
       "https://cdn/x?X-Amz-Signature=***&sig=***"},
      {"https://u:SECRET@cdn/x?region=a", "https://u:***@cdn/x?region=a"},
      {"s3://b/p?endpoint=http%3A%2F%2Fu%3ASECRET%40h&region=r",
       "s3://b/p?endpoint=http://u:***@h&region=r"},
      {"tiered:?level=mem:&level=redis%3A%2F%2F%3ASECRET%40h&write=back",
       "tiered:?level=mem:&level=redis://:***@h&write=back"},
      {"tiered:?level=%zzSECRET", "tiered:?level=***"},
      {"file:///a?token=SECRET", "file:///a?token=***"},
      {"bad\nline", "bad?line"},
      {"", ""},
  };
  for (const auto& [uri, shown] : cases) {
    EXPECT_EQ(redact_uri(uri), shown);
    EXPECT_EQ(redact_uri(uri).find("SECRET"), std::string::npos) << uri;
  }
}

// Opening fails in many ways; none of them repeats the secret.
TEST(StoreUri, ErrorsHoldNoSecrets) {
  for (const char* rest : {"", "/notanumber", "/0?unknown=1", "?SECRET", "?ttl=x", ":99999", ":x",
                           "/%", "?ttl=1&ttl=2", "?max_bytes=3", "#x"}) {
    for (const char* scheme :
         {"redis", "rediss", "mem", "file", "s3", "http", "https", "tiered", "unknown"}) {
      const std::string uri = std::string(scheme) + "://u:SECRET@127.0.0.1" + rest;
      const auto store = open_store(uri, {.ca_file = "/nonexistent"});
      if (store.ok()) continue;
      EXPECT_EQ(store.error().message.find("SECRET"), std::string::npos) << store.error().message;
    }
  }
}

TEST(StoreUri, TakesOptions) {
  const auto uri = parse_store_uri("x:?n=7&size=3K&t=1.5&flag=true&twice=1&twice=2&other=");
  ASSERT_TRUE(succeeds(uri));
  UriParams params(*uri);
  uint64_t n = 0, size = 0;
  std::chrono::milliseconds t{0};
  bool flag = false;
  EXPECT_TRUE(succeeds(params.take_number("n", 1, 7, n)));
  EXPECT_TRUE(succeeds(params.take_bytes("size", size)));
  EXPECT_TRUE(succeeds(params.take_seconds("t", t)));
  EXPECT_TRUE(succeeds(params.take_bool("flag", flag)));
  EXPECT_EQ(n, 7u);
  EXPECT_EQ(size, 3072u);
  EXPECT_EQ(t.count(), 1500);
  EXPECT_TRUE(flag);
  EXPECT_TRUE(fails_with(params.take_number("n", 1, 6, n), ErrorCode::invalid_argument, "1 to 6"));
  EXPECT_TRUE(fails_with(params.take_bytes("flag", n), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(params.take_seconds("flag", t), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(params.take_bool("n", flag), ErrorCode::invalid_argument));
  EXPECT_EQ(params.take_all("twice").size(), 2u);
  EXPECT_TRUE(
      fails_with(params.finish(), ErrorCode::invalid_argument, "unknown option at place 7"));
  EXPECT_EQ(params.take("other"), "");
  EXPECT_TRUE(succeeds(params.finish()));
  params.take("twice");
  EXPECT_TRUE(fails_with(params.finish(), ErrorCode::invalid_argument, "twice is there twice"));
}

}  // namespace
}  // namespace kvcodec
