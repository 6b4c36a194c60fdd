// SPDX-License-Identifier: Apache-2.0
// What is special to S3Store: against moto, and against servers that fail, lie or have another
// time.
#include "store/s3_store.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "s3_server.h"
#include "scripted_server.h"
#include "sealed_bytes.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

std::unique_ptr<Store> open(const std::string& uri, StoreOptions options = {}) {
  auto store = open_store(uri, options);
  if (!store.ok()) throw std::runtime_error(store.error().message);
  return *std::move(store);
}

// A store on a server that answers as the test says.
class ScriptedS3 {
 public:
  using Reply = std::function<std::string(const std::string& request, int index)>;
  explicit ScriptedS3(Reply reply, const std::string& query = {}, StoreOptions options = {})
      : server_(ScriptedServer::http([this, reply = std::move(reply)](const std::string& r, int i) {
          {
            const std::lock_guard guard(mutex_);
            requests_.push_back(r);
          }
          return reply(r, i);
        })) {
    S3Server::set_environment();
    store_ = open(
        fmt::format("s3://bucket/p?endpoint=http%3A%2F%2F127.0.0.1%3A{}{}", server_.port(), query),
        options);
  }
  Store& store() { return *store_; }
  std::vector<std::string> requests() {
    const std::lock_guard guard(mutex_);
    return requests_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> requests_;
  ScriptedServer server_;
  std::unique_ptr<Store> store_;
};

std::string error_reply(const std::string& status, const std::string& code,
                        const std::vector<std::string>& headers = {}) {
  return http_reply(status, "<Error><Code>" + code + "</Code><Message>said</Message></Error>",
                    headers);
}

std::string part_reply(const std::string& all, size_t first, size_t last,
                       const std::string& tag = "\"v1\"") {
  return http_reply(
      "206 Partial Content", all.substr(first, last - first + 1),
      {fmt::format("Content-Range: bytes {}-{}/{}", first, last, all.size()), "ETag: " + tag});
}

const std::string kUploadBegun =
    "<InitiateMultipartUploadResult><UploadId>up1</UploadId></InitiateMultipartUploadResult>";
const std::string kUploadDone =
    "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>";

TEST(S3Store, RepeatsWhatTheServerPutsOff) {
  for (const auto& busy :
       {error_reply("503 Service Unavailable", "SlowDown"), error_reply("500 x", "InternalError"),
        error_reply("429 x", "TooManyRequests"), error_reply("400 x", "RequestTimeout"),
        error_reply("409 x", "OperationAborted"), http_reply("502 Bad Gateway", "<html>")}) {
    ScriptedS3 s3(
        [&](const std::string&, int i) { return i < 2 ? busy : http_reply("200 OK", ""); });
    EXPECT_TRUE(succeeds(s3.store().put("a", to_bytes("x")))) << busy;
    EXPECT_EQ(s3.requests().size(), 3u);
  }
}

TEST(S3Store, GivesUpAtTheDeadline) {
  ScriptedS3 s3([](const std::string&, int) { return error_reply("503 x", "SlowDown"); }, "",
                {.deadline = milliseconds(300)});
  const auto refused = s3.store().stat("a");
  EXPECT_TRUE(fails_with(refused, ErrorCode::unavailable, "503"));
  EXPECT_GT(s3.requests().size(), 1u);
  EXPECT_TRUE(fails_with(s3.store().put("a", to_bytes("x")), ErrorCode::unavailable, "SlowDown"));
}

TEST(S3Store, WaitsAsLongAsTheServerAsks) {
  ScriptedS3 s3([](const std::string&,
                   int) { return error_reply("503 x", "SlowDown", {"Retry-After: 3600"}); },
                "", {.deadline = milliseconds(2000)});
  EXPECT_TRUE(fails_with(s3.store().list(), ErrorCode::unavailable, "SlowDown"));
  EXPECT_EQ(s3.requests().size(), 1u) << "the next attempt would be after the deadline";
}

TEST(S3Store, DoesNotRepeatWhatIsRefused) {
  for (const auto& [reply, text] :
       {std::pair{error_reply("403 x", "AccessDenied"), "AccessDenied: said"},
        std::pair{error_reply("404 x", "NoSuchBucket"), "NoSuchBucket"},
        std::pair{error_reply("403 x", "SignatureDoesNotMatch"), "SignatureDoesNotMatch"},
        std::pair{error_reply("301 x", "PermanentRedirect", {"x-amz-bucket-region: eu-x-1"}),
                  "region 'eu-x-1'"},
        std::pair{http_reply("418 x", "\x01\x02"), "status 418"}}) {
    ScriptedS3 s3([reply = reply](const std::string&, int) { return reply; });
    const Status refused = s3.store().put("a", to_bytes("x"));
    EXPECT_TRUE(fails_with(refused, ErrorCode::io, text));
    EXPECT_EQ(refused.error().message.find(S3Server::kSecret), std::string::npos);
    EXPECT_EQ(s3.requests().size(), 1u);
  }
}

// A transfer that breaks is resumed at the byte where it broke, of the same version.
TEST(S3Store, ResumesABrokenTransfer) {
  const std::string all(100000, 'v');
  S3Server::set_environment();
  ScriptedServer hanging([&](ScriptedServer::Peer& peer) {
    const std::string request = peer.read_http();
    if (request.find("If-Match") != std::string::npos) {
      EXPECT_NE(request.find("Range: bytes=40000-99999"), std::string::npos) << request;
      peer.send(part_reply(all, 40000, 99999));
      return;
    }
    std::string cut = part_reply(all, 0, 99999);
    peer.send(cut.substr(0, cut.size() - 60000));
  });
  const auto store =
      open(fmt::format("s3://bucket?endpoint=http%3A%2F%2F127.0.0.1%3A{}", hanging.port()));
  std::vector<std::byte> out(100000);
  const auto n = store->get("a", out);
  ASSERT_TRUE(succeeds(n));
  EXPECT_EQ(*n, 100000u);
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](std::byte b) { return b == std::byte{'v'}; }));
  EXPECT_EQ(hanging.connections(), 2);
}

TEST(S3Store, StartsAgainWhereTheObjectWasReplaced) {
  const std::string old(100000, 'o'), fresh(100000, 'f');
  std::atomic<int> count{0};
  ScriptedServer server([&](ScriptedServer::Peer& peer) {
    const std::string request = peer.read_http();
    const int i = count.fetch_add(1);
    if (i == 0) {
      const std::string cut = part_reply(old, 0, 99999);
      peer.send(cut.substr(0, cut.size() - 60000));
    } else if (i == 1) {
      EXPECT_NE(request.find("If-Match: \"v1\""), std::string::npos);
      peer.send(error_reply("412 x", "PreconditionFailed"));
    } else {
      EXPECT_EQ(request.find("If-Match"), std::string::npos);
      peer.send(part_reply(fresh, 0, 99999, "\"v2\""));
    }
  });
  S3Server::set_environment();
  const auto store =
      open(fmt::format("s3://bucket?endpoint=http%3A%2F%2F127.0.0.1%3A{}", server.port()));
  std::vector<std::byte> out(100000);
  ASSERT_TRUE(succeeds(store->get("a", out)));
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](std::byte b) { return b == std::byte{'f'}; }));
}

TEST(S3Store, RefusesAnswersToOtherQuestions) {
  const std::string all(1000, 'v');
  for (const std::string& reply :
       {part_reply(all, 1, 100), part_reply(all, 0, 200), part_reply(all, 0, 50),
        http_reply("206 x", all.substr(0, 100)),
        http_reply("206 x", all.substr(0, 100), {"Content-Range: bytes 0--5/1000"}),
        http_reply("206 x", all.substr(0, 100), {"Content-Range: bytes 5-0/1000"}),
        http_reply("206 x", all.substr(0, 100), {"Content-Range: bytes 0-99/50"}),
        http_reply("206 x", all.substr(0, 50), {"Content-Range: bytes 0-99/1000"}),
        http_reply("206 x", all, {"Content-Range: bytes 0-99/1000"}),
        http_reply("206 x", all.substr(0, 100), {"Content-Range: bytes */1000"}),
        http_reply("206 x", all.substr(0, 100),
                   {"Content-Range: bytes 0-99/1000", "Content-Range: bytes 1-100/1000"}),
        http_reply("416 x", "", {"Content-Range: bytes */1000"})}) {
    ScriptedS3 s3([reply = reply](const std::string&, int) { return reply; });
    std::vector<std::byte> out(100);
    EXPECT_TRUE(fails_with(s3.store().get("a", out), ErrorCode::corrupt)) << reply.substr(0, 200);
  }
}

TEST(S3Store, ChecksTheServersChecksum) {
  const std::string content = "the content";
  const std::string right = base64(sha256(to_bytes(content)));
  for (const std::string& sum : {right, base64(sha256({})), std::string("abc-3")}) {
    ScriptedS3 s3([&](const std::string& request, int) {
      EXPECT_NE(request.find("x-amz-checksum-mode: ENABLED"), std::string::npos);
      return http_reply("206 x", content,
                        {"Content-Range: bytes 0-10/11", "x-amz-checksum-sha256: " + sum});
    });
    std::vector<std::byte> out(100);
    const auto n = s3.store().get("a", out);
    if (sum == base64(sha256({}))) {
      EXPECT_TRUE(fails_with(n, ErrorCode::corrupt, "SHA-256"));
    } else {
      EXPECT_TRUE(succeeds(n));
    }
  }
  ScriptedS3 other([&](const std::string&, int) {
    return http_reply("200 OK", "", {"x-amz-checksum-sha256: " + right});
  });
  EXPECT_TRUE(succeeds(other.store().put("a", to_bytes(content))));
  EXPECT_TRUE(fails_with(other.store().put("a", to_bytes("x")), ErrorCode::corrupt, "other bytes"));
}

// A clock that is wrong is mended by the server's, whether or not the refusal says why.
TEST(S3Store, MendsAClockThatJumped) {
  const auto server_time = system_clock::now() + std::chrono::hours(5);
  const std::string date = fmt::format("Date: {:%a, %d %b %Y %H:%M:%S GMT}",
                                       fmt::gmtime(system_clock::to_time_t(server_time)));
  const std::string hour =
      fmt::format("x-amz-date: {:%Y%m%dT%H}", fmt::gmtime(system_clock::to_time_t(server_time)));
  ScriptedS3 s3([&](const std::string& request, int) {
    if (request.find(hour) != std::string::npos) {
      return http_reply("200 OK", "", {"ETag: \"x\""});
    }
    if (request.starts_with("HEAD")) {
      return fmt::format("HTTP/1.1 403 x\r\n{}\r\nContent-Length: 100\r\n\r\n", date);
    }
    return error_reply("403 x", "RequestTimeTooSkewed", {date});
  });
  EXPECT_TRUE(succeeds(s3.store().put("a", to_bytes("x"))));
  EXPECT_EQ(s3.requests().size(), 2u);
  EXPECT_TRUE(succeeds(s3.store().put("a", to_bytes("x"))));
  EXPECT_EQ(s3.requests().size(), 3u) << "it is remembered";

  ScriptedS3 head([&](const std::string& request, int) {
    return fmt::format("HTTP/1.1 {} x\r\n{}\r\nContent-Length: 7\r\n\r\n",
                       request.find(hour) != std::string::npos ? 200 : 403, date);
  });
  const auto stat = head.store().stat("a");
  ASSERT_TRUE(succeeds(stat));
  EXPECT_EQ(stat->bytes, 7u);

  // A server that is never content, and one that does not tell its time.
  ScriptedS3 never([&](const std::string&, int) {
    return error_reply("403 x", "RequestTimeTooSkewed", {date});
  });
  EXPECT_TRUE(fails_with(never.store().put("a", to_bytes("x")), ErrorCode::io, "clock"));
  EXPECT_EQ(never.requests().size(), 2u);
  ScriptedS3 silent(
      [&](const std::string&, int) { return error_reply("403 x", "RequestTimeTooSkewed"); });
  EXPECT_TRUE(fails_with(silent.store().put("a", to_bytes("x")), ErrorCode::io, "clock"));
}

TEST(S3Store, ReadsNewKeysWhenTheOldExpired) {
  ScriptedS3 s3([&](const std::string& request, int) {
    return request.find("Credential=AKIDNEW/") != std::string::npos
               ? http_reply("200 OK", "")
               : error_reply("400 x", "ExpiredToken");
  });
  EXPECT_TRUE(fails_with(s3.store().put("a", to_bytes("x")), ErrorCode::io, "ExpiredToken"));
  ::setenv("AWS_ACCESS_KEY_ID", "AKIDNEW", 1);
  EXPECT_TRUE(succeeds(s3.store().put("a", to_bytes("x"))));
  S3Server::set_environment();
}

TEST(S3Store, BoundsWhatAServerSends) {
  // XML without end, a listing that repeats itself, one that claims other prefixes, headers
  // without end.
  ScriptedServer endless([](ScriptedServer::Peer& peer) {
    (void)peer.read_http();
    peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    const std::string chunk = "10000\r\n" + std::string(0x10000, '<') + "\r\n";
    while (peer.send(chunk)) {
    }
  });
  const auto uri = [](const ScriptedServer& server) {
    return fmt::format("s3://bucket?endpoint=http%3A%2F%2F127.0.0.1%3A{}", server.port());
  };
  S3Server::set_environment();
  EXPECT_TRUE(fails_with(open(uri(endless))->list(), ErrorCode::corrupt, "more than was asked"));
  EXPECT_TRUE(fails_with(open(uri(endless))->put("a", {}), ErrorCode::corrupt));
  ScriptedServer headers([](ScriptedServer::Peer& peer) {
    (void)peer.read_http();
    peer.send("HTTP/1.1 200 OK\r\n");
    for (int i = 0; peer.send(fmt::format("H{}: {}\r\n", i, std::string(1000, 'x'))); ++i) {
    }
  });
  const auto too_many = open(uri(headers), {.deadline = milliseconds(2000)})->stat("a");
  EXPECT_TRUE(fails_with(too_many, ErrorCode::corrupt));
  ScriptedS3 looping([](const std::string&, int) {
    return http_reply("200 OK",
                      "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t"
                      "</NextContinuationToken></ListBucketResult>");
  });
  EXPECT_TRUE(fails_with(looping.store().list(), ErrorCode::corrupt, "does not go on"));
  ScriptedS3 foreign([](const std::string&, int) {
    return http_reply("200 OK",
                      "<ListBucketResult><Contents><Key>q/a</Key><Size>1</Size></Contents>"
                      "</ListBucketResult>");
  });
  EXPECT_TRUE(fails_with(foreign.store().list(), ErrorCode::corrupt, "without the prefix"));
  ScriptedS3 no_length([](const std::string&, int) {
    return std::string("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
  });
  EXPECT_TRUE(fails_with(no_length.store().stat("a"), ErrorCode::corrupt, "no length"));
  for (const char* junk : {"junk\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "\r\n\r\n"}) {
    ScriptedServer server([&](ScriptedServer::Peer& peer) {
      (void)peer.read_http();
      peer.send(junk);
    });
    EXPECT_FALSE(open(uri(server), {.deadline = milliseconds(200)})->stat("a").ok()) << junk;
  }
}

TEST(S3Store, AbortsAnUploadThatFails) {
  for (const char* failing : {"partNumber=2", "POST /bucket/p/a?uploadId"}) {
    ScriptedS3 s3(
        [&](const std::string& request, int) {
          if (request.find(failing) != std::string::npos)
            return error_reply("403 x", "AccessDenied");
          if (request.find("?uploads=") != std::string::npos) {
            return http_reply("200 OK", kUploadBegun);
          }
          if (request.starts_with("DELETE")) return std::string("HTTP/1.1 204 x\r\n\r\n");
          return http_reply("200 OK", "", {"ETag: \"e\""});
        },
        "&multipart_bytes=64K&part_bytes=64K");
    EXPECT_TRUE(fails_with(s3.store().put("a", std::vector<std::byte>(150000)), ErrorCode::io,
                           "AccessDenied"));
    const auto requests = s3.requests();
    EXPECT_TRUE(requests.back().starts_with("DELETE /bucket/p/a?uploadId=up1 ")) << requests.back();
  }
}

TEST(S3Store, CompletesAnUpload) {
  // Success with an error inside it, which is to be repeated; and an answer that was lost.
  for (const bool lost : {false, true}) {
    std::atomic<int> completions{0};
    ScriptedS3 s3(
        [&](const std::string& request, int) {
          if (request.find("?uploads=") != std::string::npos) {
            return http_reply("200 OK", kUploadBegun);
          }
          if (request.starts_with("HEAD")) {
            return std::string("HTTP/1.1 200 OK\r\nContent-Length: 150000\r\n\r\n");
          }
          if (request.starts_with("POST")) {
            EXPECT_NE(request.find("<PartNumber>3</PartNumber><ETag>\"e\"</ETag>"),
                      std::string::npos);
            if (completions.fetch_add(1) == 0) return error_reply("200 OK", "InternalError");
            return lost ? error_reply("404 x", "NoSuchUpload") : http_reply("200 OK", kUploadDone);
          }
          return http_reply("200 OK", "", {"ETag: \"e\""});
        },
        "&multipart_bytes=64K&part_bytes=64K");
    EXPECT_TRUE(succeeds(s3.store().put("a", std::vector<std::byte>(150000))));
    EXPECT_EQ(completions, 2);
  }
}

TEST(S3Store, HidesUnfinishedUploadsAndForeignObjects) {
  if (!S3Server::missing().empty()) GTEST_SKIP() << S3Server::missing();
  const S3Server server;
  // Uploads that end in the middle, by their deadline.
  const auto hurried =
      open(server.uri("p", "&multipart_bytes=64K&part_bytes=64K"), {.deadline = milliseconds(100)});
  Status cut = ok_status();
  for (int i = 0; i < 5 && cut.ok(); ++i) cut = hurried->put("a", std::vector<std::byte>(20 << 20));
  EXPECT_TRUE(fails_with(cut, ErrorCode::unavailable));
  const auto store = open(server.uri("p"));
  EXPECT_TRUE(fails_with(store->stat("a"), ErrorCode::not_found));
  EXPECT_TRUE(names_of(*store).empty());
  const auto above = open(server.uri(""));
  ASSERT_TRUE(succeeds(above->put("p/x", to_bytes("x"))));
  ASSERT_TRUE(succeeds(above->put("px", to_bytes("x"))));
  EXPECT_EQ(names_of(*store), std::vector<std::string>{"x"});
}

TEST(S3Store, ListsMoreThanAPage) {
  if (!S3Server::missing().empty()) GTEST_SKIP() << S3Server::missing();
  const S3Server server(1003);
  const auto store = open(server.uri("many"));
  EXPECT_EQ(names_of(*store).size(), 1003u);
  EXPECT_EQ(names_of(*store, "100").size(), 3u);
}

TEST(S3Store, NeedsTheRightKey) {
  if (!S3Server::missing().empty()) GTEST_SKIP() << S3Server::missing();
  const S3Server server;
  ::setenv("AWS_SECRET_ACCESS_KEY", "other", 1);
  EXPECT_TRUE(fails_with(open(server.uri("p"))->put("a", to_bytes("x")), ErrorCode::io,
                         "SignatureDoesNotMatch"));
  S3Server::set_environment();
  EXPECT_TRUE(succeeds(open(server.uri("p q/%C3%A9"))->put("a", to_bytes("x"))));
}

TEST(S3Store, NamesTheBucketInTheHostWhereAsked) {
  std::string request;
  ScriptedServer server([&](ScriptedServer::Peer& peer) {
    request = peer.read_http();
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
  });
  S3Server::set_environment();
  const auto store = open(fmt::format(
      "s3://bucket/p?path_style=false&endpoint=http%3A%2F%2Flocalhost%3A{}", server.port()));
  ASSERT_TRUE(succeeds(store->stat("a")));
  EXPECT_TRUE(request.starts_with("HEAD /p/a HTTP/1.1\r\n")) << request;
  EXPECT_NE(request.find(fmt::format("Host: bucket.localhost:{}\r\n", server.port())),
            std::string::npos);
}

TEST(S3Store, RefusesWhatItCannotDo) {
  S3Server::set_environment();
  for (const char* uri :
       {"s3:", "s3://", "s3://B/x", "s3://ab", "s3://bucket:1/x", "s3://u:p@bucket", "s3://b_c",
        "s3://bucket?endpoint=ftp%3A%2F%2Fh", "s3://bucket?endpoint=http%3A%2F%2Fh%2Fpath",
        "s3://bucket?endpoint=x", "s3://bucket?part_bytes=1", "s3://bucket?unknown=1",
        "s3://bucket?path_style=yes", "s3://bucket?profile=nobody"}) {
    EXPECT_TRUE(fails_with(open_store(uri), ErrorCode::invalid_argument)) << uri;
  }
  EXPECT_TRUE(fails_with(open_store("s3://bucket", {.max_bytes = 1}), ErrorCode::unsupported));
  ::unsetenv("AWS_ACCESS_KEY_ID");
  ::unsetenv("AWS_SECRET_ACCESS_KEY");
  EXPECT_TRUE(fails_with(open_store("s3://bucket"), ErrorCode::invalid_argument, "no keys"));
  EXPECT_TRUE(succeeds(open_store("s3://bucket?anonymous=true")));
  S3Server::set_environment();
}

}  // namespace
}  // namespace kvcodec
