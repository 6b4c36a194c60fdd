// SPDX-License-Identifier: Apache-2.0
// HttpStore against nginx, Python's http.server and servers that lie.
#include "store/http_store.h"

#include <array>
#include <atomic>

#include "nginx_server.h"
#include "scripted_server.h"
#include "sealed_bytes.h"
#include "server_process.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<Store> open(const std::string& uri, StoreOptions options = {}) {
  auto store = open_store(uri, options);
  if (!store.ok()) throw std::runtime_error(store.error().message);
  return *std::move(store);
}

void expect_ranges(Store& store, const std::string& name, std::span<const std::byte> bytes) {
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, uint64_t{60000}, bytes.size() - 1,
                                uint64_t{bytes.size()}, UINT64_MAX}) {
    for (const size_t room : {size_t{0}, size_t{1}, size_t{50000}, bytes.size() + 1}) {
      std::vector<std::byte> out(room);
      const auto n = store.get(name, out, offset);
      ASSERT_TRUE(succeeds(n)) << offset;
      const uint64_t behind = offset < bytes.size() ? bytes.size() - offset : 0;
      ASSERT_EQ(*n, std::min<uint64_t>(room, behind)) << offset << " " << room;
      EXPECT_TRUE(std::equal(out.begin(), out.begin() + static_cast<ptrdiff_t>(*n),
                             bytes.begin() + static_cast<ptrdiff_t>(bytes.size() - behind)));
    }
  }
}

TEST(HttpStoreTest, ReadsFromNginx) {
  if (!Nginx::installed()) GTEST_SKIP() << "no nginx here: scripts/install-deps";
  const Nginx nginx;
  const auto bytes = make_sealed("a/b", 1, 300000);
  nginx.write("a/b", bytes);
  nginx.write("empty", {});
  for (const std::string& url :
       {nginx.url("/kv"), nginx.url("/kv/"), nginx.url("/moved"), nginx.url("/kv?token=x%26y"),
        nginx.url("/guarded", "user:pass%20word@")}) {
    const auto store = open(url);
    expect_ranges(*store, "a/b", bytes);
    EXPECT_EQ(*get_object(*store, "a/b", 1 << 20), bytes) << url;
    EXPECT_EQ(*get_object(*store, "empty", 1 << 20), std::vector<std::byte>());
    const auto stat = store->stat("a/b");
    ASSERT_TRUE(succeeds(stat));
    EXPECT_EQ(stat->bytes, bytes.size());
    EXPECT_LT(std::chrono::abs(stat->last_used - std::chrono::system_clock::now()),
              std::chrono::minutes(10));
    EXPECT_TRUE(fails_with(store->stat("b"), ErrorCode::not_found, "'b'"));
    EXPECT_TRUE(fails_with(get_object(*store, "b", 10), ErrorCode::not_found));
  }
  const auto stranger = open(nginx.url("/guarded", "user:wrong@"))->stat("a/b");
  EXPECT_TRUE(fails_with(stranger, ErrorCode::io, "401"));
  EXPECT_EQ(stranger.error().message.find("wrong"), std::string::npos);
}

TEST(HttpStoreTest, RefusesWrongCertificates) {
  if (!Nginx::installed()) GTEST_SKIP() << "no nginx here: scripts/install-deps";
  const Nginx nginx, misnamed("DNS:elsewhere");
  nginx.write("a", to_bytes("x"));
  EXPECT_TRUE(succeeds(open(nginx.tls_url("/kv"), {.ca_file = nginx.ca_file()})->stat("a")));
  EXPECT_TRUE(fails_with(open(nginx.tls_url("/kv"))->stat("a"), ErrorCode::io, "certificate"));
  EXPECT_TRUE(fails_with(open(misnamed.tls_url("/kv"), {.ca_file = misnamed.ca_file()})->stat("a"),
                         ErrorCode::io, "certificate"));
}

TEST(HttpStoreTest, ReadsFromAServerWithoutRanges) {
  const TempDir dir;
  const auto bytes = make_sealed("a", 1, 300000);
  write_text(dir / "a", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const uint16_t port = free_port();
  ServerProcess server({KVCODEC_TEST_PYTHON, "-m", "http.server", "--bind", "127.0.0.1",
                        "--directory", dir.path(), std::to_string(port)},
                       dir / "log");
  server.await(port);
  const auto store = open("http://127.0.0.1:" + std::to_string(port));
  expect_ranges(*store, "a", bytes);
  EXPECT_EQ(*get_object(*store, "a", 1 << 20), bytes);
}

TEST(HttpStoreTest, IsReadOnly) {
  const auto store = open("http://127.0.0.1:1");
  EXPECT_TRUE(fails_with(store->put("a", to_bytes("x")), ErrorCode::unsupported, "read only"));
  EXPECT_TRUE(fails_with(store->remove("a"), ErrorCode::unsupported, "read only"));
  EXPECT_TRUE(fails_with(store->list(), ErrorCode::unsupported, "read only"));
  EXPECT_TRUE(fails_with(open_store("http://h", {.max_bytes = 1}), ErrorCode::unsupported));
  for (const char* uri : {"http:", "http://", "http:///x", "http://h?deadline=-1"}) {
    EXPECT_TRUE(fails_with(open_store(uri), ErrorCode::invalid_argument)) << uri;
  }
}

TEST(HttpStoreTest, NeverFollowsFromTlsToPlain) {
  // The redirection itself comes over plain HTTP here, and may lead to other schemes only if http.
  ScriptedServer server(ScriptedServer::http([](const std::string&, int i) {
    return http_reply("302 Found", "",
                      {i % 2 == 0 ? "Location: file:///etc/hostname" : "Location: /loop/a"});
  }));
  const auto store =
      open("http://127.0.0.1:" + std::to_string(server.port()), {.deadline = milliseconds(1000)});
  EXPECT_TRUE(fails_with(store->stat("a"), ErrorCode::io));
  EXPECT_TRUE(fails_with(store->stat("a"), ErrorCode::io));
}

// A server without ranges and with an object that has no end is cut off once there is enough.
TEST(HttpStoreTest, ReadsNoMoreThanItNeeds) {
  std::atomic<uint64_t> sent{0};
  ScriptedServer endless([&](ScriptedServer::Peer& peer) {
    while (!peer.read_http().empty()) {
      peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      const std::string chunk = "10000\r\n" + std::string(0x10000, 'x') + "\r\n";
      while (peer.send(chunk)) sent += 0x10000;
    }
  });
  const auto store = open("http://127.0.0.1:" + std::to_string(endless.port()));
  std::vector<std::byte> out(1000);
  const auto n = store->get("a", out, 500000);
  ASSERT_TRUE(succeeds(n));
  EXPECT_EQ(*n, 1000u);
  EXPECT_EQ(out[999], std::byte{'x'});
  EXPECT_LT(sent, uint64_t{64} << 20);
}

TEST(HttpStoreTest, AStalledServerEndsAtTheDeadline) {
  ScriptedServer stalled([](ScriptedServer::Peer& peer) {
    (void)peer.read_http();
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    (void)peer.read_until("never");
  });
  const auto store =
      open("http://127.0.0.1:" + std::to_string(stalled.port()), {.deadline = milliseconds(200)});
  std::array<std::byte, 10> out;
  EXPECT_TRUE(fails_with(store->get("a", out), ErrorCode::unavailable, "get 'a'"));
}

}  // namespace
}  // namespace kvcodec
