// SPDX-License-Identifier: Apache-2.0
// Signatures, keys and XML of the S3 API, without a server.
#include <cstdlib>

#include "kvcodec/key.h"
#include "sealed_bytes.h"
#include "store/s3_credentials.h"
#include "store/s3_sign.h"
#include "store/s3_xml.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

// The examples of the Amazon S3 API Reference, "Signature Calculations for the Authorization
// Header: Transferring Payload in a Single Chunk".
TEST(S3Sign, GivesTheReferencesSignatures) {
  const S3Credentials credentials{"AKIAIOSFODNN7EXAMPLE",
                                  "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
  const auto time = std::chrono::system_clock::from_time_t(1369353600);  // 2013-05-24
  const std::string host = "examplebucket.s3.amazonaws.com", empty = to_hex(sha256({}));
  const std::pair<S3SignedRequest, const char*> cases[] = {
      {{"GET", host, "/test.txt", {}, {"range: bytes=0-9"}, empty},
       "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
      {{"PUT",
        host,
        "/test%24file.text",
        {},
        {"date: Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class: REDUCED_REDUNDANCY"},
        to_hex(sha256(to_bytes("Welcome to Amazon S3.")))},
       "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
      {{"GET", host, "/", {{"lifecycle", ""}}, {}, empty},
       "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
      {{"GET", host, "/", {{"prefix", "J"}, {"max-keys", "2"}}, {}, empty},
       "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
  };
  for (const auto& [request, signature] : cases) {
    const auto headers = s3_sign(request, credentials, "us-east-1", time);
    EXPECT_NE(headers.back().find(std::string("Signature=") + signature), std::string::npos)
        << headers.back();
  }
}

TEST(S3Sign, SignsTheSessionToken) {
  const S3SignedRequest request{"GET", "h", "/", {}, {}, ""};
  const auto headers = s3_sign(request, {"key", "secret", "token"}, "r", {});
  EXPECT_NE(std::find(headers.begin(), headers.end(), "x-amz-security-token: token"),
            headers.end());
  EXPECT_NE(headers.back().find("x-amz-security-token"), std::string::npos);
  EXPECT_TRUE(s3_sign(request, {}, "r", {}).empty()) << "anonymous";
}

class S3CredentialsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
          "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"}) {
      ::unsetenv(name);
    }
    ::setenv("AWS_SHARED_CREDENTIALS_FILE", (dir / "credentials").c_str(), 1);
    ::setenv("AWS_CONFIG_FILE", (dir / "config").c_str(), 1);
  }
  const TempDir dir;
};

TEST_F(S3CredentialsTest, ReadsProfiles) {
  write_text(dir / "credentials",
             "# comment\n[default]\naws_access_key_id = A\naws_secret_access_key=B=C\n"
             "[ other ]\r\naws_access_key_id=D\r\naws_secret_access_key=E\r\n"
             "aws_session_token = T\r\n[half]\naws_access_key_id = X\n");
  write_text(dir / "config",
             "[default]\nregion = eu-a-1\ns3 =\n  region = nested\n[profile other]\nregion=eu-b-1\n"
             "endpoint_url = http://h\n[profile sso]\nsso_start_url = x\n"
             "[profile inconfig]\naws_access_key_id = F\naws_secret_access_key = G\n");
  auto profile = load_s3_profile("");
  ASSERT_TRUE(succeeds(profile));
  EXPECT_EQ(profile->credentials, (S3Credentials{"A", "B=C", ""}));
  EXPECT_EQ(profile->region, "eu-a-1");
  profile = load_s3_profile("other");
  ASSERT_TRUE(succeeds(profile));
  EXPECT_EQ(profile->credentials, (S3Credentials{"D", "E", "T"}));
  EXPECT_EQ(profile->region, "eu-b-1");
  EXPECT_EQ(profile->endpoint, "http://h");
  EXPECT_EQ(load_s3_profile("inconfig")->credentials, (S3Credentials{"F", "G", ""}));
  EXPECT_TRUE(fails_with(load_s3_profile("half"), ErrorCode::invalid_argument, "no secret one"));
  EXPECT_TRUE(fails_with(load_s3_profile("sso"), ErrorCode::unsupported, "sso_start_url"));
  EXPECT_TRUE(fails_with(load_s3_profile("nobody"), ErrorCode::invalid_argument, "'nobody'"));
  ::setenv("AWS_PROFILE", "other", 1);
  EXPECT_EQ(load_s3_profile("")->credentials.access_key, "D");
  ::setenv("AWS_ACCESS_KEY_ID", "ENV", 1);
  EXPECT_TRUE(fails_with(load_s3_profile(""), ErrorCode::invalid_argument, "environment"));
  ::setenv("AWS_SECRET_ACCESS_KEY", "S", 1);
  ::setenv("AWS_REGION", "env-r-1", 1);
  EXPECT_EQ(load_s3_profile("")->credentials.access_key, "ENV");
  EXPECT_EQ(load_s3_profile("")->region, "env-r-1");
  EXPECT_EQ(load_s3_profile("other")->credentials.access_key, "D");
}

TEST_F(S3CredentialsTest, BoundsItsFiles) {
  EXPECT_TRUE(load_s3_profile("")->credentials.anonymous());
  write_text(dir / "credentials", std::string(2 << 20, '#'));
  EXPECT_TRUE(fails_with(load_s3_profile(""), ErrorCode::io, "at most"));
}

TEST(S3Xml, ReadsListings) {
  const auto listing = parse_s3_listing(
      "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
      "<Name>b</Name><IsTruncated>true</IsTruncated><Contents><Key>a&amp;b</Key>"
      "<LastModified>2026-12-01T00:00:01.000Z</LastModified><Size>12</Size>"
      "<Owner><ID>Key</ID></Owner></Contents><Contents><Size>0</Size><Key>c</Key></Contents>"
      "<NextContinuationToken>t/=</NextContinuationToken></ListBucketResult>");
  ASSERT_TRUE(succeeds(listing));
  ASSERT_EQ(listing->objects.size(), 2u);
  EXPECT_EQ(listing->objects[0].key, "a&b");
  EXPECT_EQ(listing->objects[0].bytes, 12u);
  EXPECT_EQ(std::chrono::system_clock::to_time_t(listing->objects[0].modified), 1796083201);
  EXPECT_EQ(listing->objects[1].key, "c");
  EXPECT_TRUE(listing->truncated);
  EXPECT_EQ(listing->next_token, "t/=");
}

TEST(S3Xml, RefusesHostileDocuments) {
  std::string deep, wide = "<ListBucketResult><Contents><Key>";
  for (int i = 0; i < 100000; ++i) deep += "<a>";
  wide += std::string(1 << 20, 'x') + "</Key></Contents></ListBucketResult>";
  const std::string bomb =
      "<!DOCTYPE x [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]>"
      "<ListBucketResult><Name>&b;</Name></ListBucketResult>";
  const auto contents = [](const std::string& inside) {
    return "<ListBucketResult><Contents>" + inside + "</Contents></ListBucketResult>";
  };
  for (const std::string& xml :
       {std::string(), std::string("x"), std::string("<ListBucketResult>"), deep, wide, bomb,
        std::string("<Other/>"), std::string("<ListBucketResult/><ListBucketResult/>"),
        contents(""), contents("<Key>a</Key>"), contents("<Size>1</Size>"),
        contents("<Key>a</Key><Size>-1</Size>"), contents("<Key>a</Key><Size>1e3</Size>"),
        contents("<Key>a</Key><Size>99999999999999999999999</Size>"), contents("<Key>a&x;</Key>"),
        std::string("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"),
        std::string("<ListBucketResult>\0</ListBucketResult>", 37)}) {
    EXPECT_TRUE(fails_with(parse_s3_listing(xml), ErrorCode::corrupt)) << xml.substr(0, 100);
    EXPECT_TRUE(fails_with(parse_s3_upload_id(xml), ErrorCode::corrupt));
    EXPECT_TRUE(fails_with(parse_s3_complete(xml), ErrorCode::corrupt));
    EXPECT_EQ(parse_s3_error(xml).code, "");
  }
  EXPECT_EQ(parse_s3_error("<Error><Code>C</Code><Message>M</Message></Error>").code, "C");
  EXPECT_EQ(*parse_s3_complete("<Error><Code>C</Code></Error>"), "C");
}

}  // namespace
}  // namespace kvcodec
