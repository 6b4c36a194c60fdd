// SPDX-License-Identifier: Apache-2.0
// What is special to RedisStore: its keys, and servers that restart, fill up, stall or lie.
#include "store/redis_store.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "redis_server.h"
#include "scripted_server.h"
#include "sealed_bytes.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<Store> open(const std::string& uri, StoreOptions options = {}) {
  auto store = open_store(uri, options);
  if (!store.ok()) throw std::runtime_error(store.error().message);
  return *std::move(store);
}

// A command by another client.
RedisReply ask_server(const RedisServer& server, const std::vector<std::string>& command) {
  const Deadline deadline = Deadline::in(milliseconds(10000));
  auto client = RedisConnection::open({"127.0.0.1", server.port(), nullptr}, {}, deadline,
                                      milliseconds(10000));
  EXPECT_TRUE(succeeds(client));
  EXPECT_TRUE(succeeds(client->send(command, deadline)));
  EXPECT_TRUE(succeeds(client->flush(deadline)));
  auto reply = client->read(deadline);
  EXPECT_TRUE(succeeds(reply));
  return *std::move(reply);
}

std::vector<std::string> keys_of(const RedisServer& server, const std::string& pattern = "*") {
  std::vector<std::string> found;
  for (const RedisReply& key : ask_server(server, {"KEYS", pattern}).items) {
    found.push_back(key.bytes);
  }
  std::sort(found.begin(), found.end());
  return found;
}

class RedisStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!RedisServer::missing().empty()) GTEST_SKIP() << RedisServer::missing();
    server.emplace();
    store = open(server->uri("", "?part_bytes=4096"));
  }
  RedisReply ask(const std::vector<std::string>& command) { return ask_server(*server, command); }
  std::vector<std::string> keys(const std::string& pattern = "*") {
    return keys_of(*server, pattern);
  }

  std::optional<RedisServer> server;
  std::unique_ptr<Store> store;
};

TEST_F(RedisStoreTest, CutsLargeObjectsAndLeavesNoPartBehind) {
  ASSERT_TRUE(succeeds(store->put("a/b", make_sealed("a/b", 1, 200000))));
  EXPECT_EQ(keys().size(), 1u + 49);
  for (const auto& key : keys()) EXPECT_TRUE(key.starts_with("kvcodec:{a/b}")) << key;
  for (const auto& key : keys()) EXPECT_EQ(ask({"PTTL", key}).number, -1) << key;
  ASSERT_TRUE(succeeds(store->put("a/b", make_sealed("a/b", 2, 100000))));
  EXPECT_EQ(keys().size(), 1u + 25) << "parts of the version before";
  EXPECT_EQ(sealed_version("a/b", *get_object(*store, "a/b", 1 << 20)), 2u);
  ASSERT_TRUE(succeeds(store->put("a/b", to_bytes("small"))));
  EXPECT_EQ(keys(), std::vector<std::string>{"kvcodec:{a/b}"});
  ASSERT_TRUE(succeeds(store->put("a/b", make_sealed("a/b", 3, 100000))));
  ASSERT_TRUE(succeeds(store->remove("a/b")));
  EXPECT_TRUE(keys().empty());
}

TEST_F(RedisStoreTest, ReadsAnyRangeOfParts) {
  const auto bytes = make_sealed("a", 1, 100000);
  ASSERT_TRUE(succeeds(store->put("a", bytes)));
  for (const uint64_t offset : {0u, 1u, 4095u, 4096u, 4097u, 50000u, 98303u, 99999u, 100000u}) {
    for (const size_t room : {1u, 2u, 4096u, 8193u, 70000u}) {
      std::vector<std::byte> out(room);
      const auto n = store->get("a", out, offset);
      ASSERT_TRUE(succeeds(n));
      ASSERT_EQ(*n, std::min<size_t>(room, bytes.size() - offset));
      EXPECT_TRUE(std::equal(out.begin(), out.begin() + static_cast<ptrdiff_t>(*n),
                             bytes.begin() + static_cast<ptrdiff_t>(offset)));
    }
  }
}

TEST_F(RedisStoreTest, PartsOfADeadWriterExpireAndAreNoObjects) {
  // What a writer has sent when it dies before its transaction.
  ask({"PSETEX", "kvcodec:{a}:00112233445566778899aabbccddeeff:0", "900000", "part"});
  EXPECT_TRUE(names_of(*store).empty());
  EXPECT_TRUE(fails_with(store->stat("a"), ErrorCode::not_found));
}

TEST_F(RedisStoreTest, ObjectsExpireWhole) {
  const auto mortal = open(server->uri("", "?part_bytes=4096&ttl=0.3"));
  ASSERT_TRUE(succeeds(mortal->put("a", make_sealed("a", 1, 100000))));
  ASSERT_TRUE(succeeds(mortal->put("b", to_bytes("x"))));
  for (const auto& key : keys()) EXPECT_GT(ask({"PTTL", key}).number, 0) << key;
  for (int i = 0; i < 500 && !keys().empty(); ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(keys().empty());
  EXPECT_TRUE(fails_with(mortal->stat("a"), ErrorCode::not_found));
}

TEST_F(RedisStoreTest, AnObjectThatLostAPartIsNotThere) {
  ASSERT_TRUE(succeeds(store->put("a", make_sealed("a", 1, 100000))));
  ask({"DEL", keys("*:7").at(0)});
  EXPECT_TRUE(fails_with(get_object(*store, "a", 1 << 20), ErrorCode::not_found, "'a'"));
  std::vector<std::byte> out(10);
  EXPECT_TRUE(succeeds(store->get("a", out, 0))) << "the range is there";
  ASSERT_TRUE(succeeds(store->put("a", make_sealed("a", 2, 100000))));
  EXPECT_TRUE(succeeds(get_object(*store, "a", 1 << 20)));
}

TEST_F(RedisStoreTest, OtherKeysAreNoObjects) {
  ask({"SET", "kvcodec:{text}", "not a manifest"});
  ask({"LPUSH", "kvcodec:{list}", "x"});
  ask({"SET", "kvcodec:{A B}", "x"});
  ask({"SET", "other:{a}", "x"});
  ask({"SET", "kvcodec:{}", "x"});
  EXPECT_TRUE(names_of(*store).empty());
  std::array<std::byte, 4> out;
  EXPECT_TRUE(fails_with(store->get("text", out), ErrorCode::corrupt, "not a manifest"));
  EXPECT_TRUE(fails_with(store->get("list", out), ErrorCode::io, "WRONGTYPE"));
  // It is replaced all the same, as a damaged object is.
  ASSERT_TRUE(succeeds(store->put("text", to_bytes("x"))));
  EXPECT_EQ(*get_object(*store, "text", 10), to_bytes("x"));
}

TEST_F(RedisStoreTest, ListsManyAndOnlyThePrefix) {
  for (int i = 0; i < 2500; ++i) {
    ASSERT_TRUE(succeeds(store->put(fmt::format("n/{:04}", i), to_bytes("x"))));
  }
  EXPECT_EQ(names_of(*store).size(), 2500u);
  EXPECT_EQ(names_of(*store, "n/12").size(), 100u);
  EXPECT_TRUE(names_of(*store, "n/*").empty());
  EXPECT_TRUE(names_of(*store, "n/[0-9]").empty());
}

TEST_F(RedisStoreTest, LogsIn) {
  RedisServer guarded({.arguments = {"--requirepass", "sesame"}});
  for (const char* login : {"", ":wrong@", "nobody:sesame@"}) {
    const auto refused = open(guarded.uri(login))->stat("a");
    EXPECT_TRUE(fails_with(refused, ErrorCode::io, "the server says")) << login;
    EXPECT_EQ(refused.error().message.find("sesame"), std::string::npos);
    EXPECT_EQ(refused.error().message.find(":wrong"), std::string::npos);
  }
  for (const char* login : {":sesame@", "default:sesame@"}) {
    EXPECT_TRUE(fails_with(open(guarded.uri(login))->stat("a"), ErrorCode::not_found));
  }
}

TEST_F(RedisStoreTest, RefusesWrongCertificates) {
  RedisServer good({.tls = true}), misnamed({.tls = true, .certificate_host = "DNS:elsewhere"});
  const StoreOptions trusting{.ca_file = good.ca_file()};
  EXPECT_TRUE(fails_with(open(good.uri(), trusting)->stat("a"), ErrorCode::not_found));
  EXPECT_TRUE(fails_with(open(good.uri())->stat("a"), ErrorCode::io, "certificate refused"));
  EXPECT_TRUE(fails_with(open(misnamed.uri(), {.ca_file = misnamed.ca_file()})->stat("a"),
                         ErrorCode::io, "certificate refused"));
  // A server without TLS behind rediss.
  const auto plain = open("rediss://127.0.0.1:" + std::to_string(server->port()),
                          {.deadline = milliseconds(200), .ca_file = good.ca_file()});
  EXPECT_TRUE(fails_with(plain->stat("a"), ErrorCode::unavailable));
}

TEST_F(RedisStoreTest, RefusesWhatItCannotKeep) {
  EXPECT_TRUE(
      fails_with(open_store("redis://h", {.max_bytes = 1}), ErrorCode::unsupported, "maxmemory"));
  for (const char* uri : {"redis:", "redis:///1", "redis://h/x", "redis://h/1/2", "redis://h?a=1",
                          "redis://h?prefix={a}", "redis://h?part_bytes=1", "redis://h?ttl=-1",
                          "redis://h?connections=0", "redis://h?deadline=x"}) {
    EXPECT_TRUE(fails_with(open_store(uri), ErrorCode::invalid_argument, "store URI")) << uri;
  }
}

TEST_F(RedisStoreTest, AFullServerRefusesAndKeepsWhatItHas) {
  RedisServer small({.arguments = {"--maxmemory", "8mb", "--maxmemory-policy", "noeviction"}});
  const auto full = open(small.uri());
  ASSERT_TRUE(succeeds(full->put("a", make_sealed("a", 1, 2000000))));
  EXPECT_TRUE(fails_with(full->put("a", make_sealed("a", 2, 30000000)), ErrorCode::io, "OOM"));
  EXPECT_EQ(sealed_version("a", *get_object(*full, "a", 1 << 24)), 1u);
  // The parts of the put that failed go away by themselves.
  int mortal = 0;
  for (const auto& key : keys_of(small)) {
    mortal += ask_server(small, {"PTTL", key}).number > 0 ? 1 : 0;
  }
  EXPECT_GT(mortal, 0);
  EXPECT_EQ(keys_of(small).size(), static_cast<size_t>(mortal) + 1 + 2);
}

TEST_F(RedisStoreTest, AServerThatEvictsNeverGivesHalfObjects) {
  RedisServer small({.arguments = {"--maxmemory", "8mb", "--maxmemory-policy", "allkeys-random"}});
  const auto lru = open(small.uri("", "?part_bytes=64K"));
  int missing = 0, there = 0;
  for (int i = 0; i < 60; ++i) {
    const std::string name = fmt::format("n{}", i);
    (void)lru->put(name, make_sealed(name, 1, 400000));
    const std::string other = fmt::format("n{}", i / 2);
    const auto bytes = get_object(*lru, other, 1 << 20);
    if (bytes.ok()) {
      ++there;
      EXPECT_TRUE(sealed_version(other, *bytes));
    } else {
      ++missing;
      EXPECT_EQ(bytes.error().code, ErrorCode::not_found) << bytes.error().message;
    }
  }
  EXPECT_GT(missing, 0);
  EXPECT_GT(there, 0);
}

TEST_F(RedisStoreTest, GoesOnAfterARestart) {
  RedisServer durable({.arguments = {"--appendonly", "yes", "--appendfsync", "always"}});
  const auto kept = open(durable.uri("", "?part_bytes=4096"));
  std::atomic<int> wrong{0}, failed{0}, good{0};
  std::atomic<bool> stop{false};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = fmt::format("n{}", t);
      for (uint64_t i = 1; !stop; ++i) {
        const size_t size = i % 2 == 0 ? 1000 : 100000;
        if (!kept->put(name, make_sealed(name, i, size)).ok()) {
          ++failed;
          continue;
        }
        const auto bytes = get_object(*kept, name, 1 << 20);
        if (!bytes.ok()) {
          ++failed;
        } else {
          ++(sealed_version(name, *bytes) == i ? good : wrong);
        }
      }
    });
  }
  for (int restart = 0; restart < 3; ++restart) {
    const int before = good;
    while (good < before + 5) std::this_thread::sleep_for(milliseconds(2));
    durable.stop();
    std::this_thread::sleep_for(milliseconds(30));
    durable.start();
  }
  const int before = good;
  while (good < before + 5) std::this_thread::sleep_for(milliseconds(2));
  stop = true;
  threads.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(failed, 0) << "every call outlasts a restart within its deadline";
}

TEST_F(RedisStoreTest, GivesUpAtTheDeadline) {
  const auto hurried = open(server->uri(), {.deadline = milliseconds(150)});
  ASSERT_TRUE(succeeds(hurried->put("a", to_bytes("x"))));
  server->process().signal(SIGSTOP);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(fails_with(hurried->stat("a"), ErrorCode::unavailable, "deadline"));
    EXPECT_TRUE(fails_with(hurried->put("a", to_bytes("y")), ErrorCode::unavailable, "put 'a'"));
  }
  server->process().signal(SIGCONT);
  EXPECT_TRUE(succeeds(hurried->stat("a")));
  server->stop();
  EXPECT_TRUE(fails_with(hurried->stat("a"), ErrorCode::unavailable, "attempt"));
}

TEST_F(RedisStoreTest, SharesFewConnections) {
  const auto one = open(server->uri(), {.connections = 1});
  std::atomic<int> failed{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        const std::string name = fmt::format("n{}", t);
        for (int i = 0; i < 20; ++i) {
          if (!one->put(name, to_bytes(name)).ok() || !one->stat(name).ok()) ++failed;
        }
      });
    }
  }
  EXPECT_EQ(failed, 0);
  // All came by one connection: ours, and the one that asks.
  EXPECT_EQ(ask({"INFO", "stats"}).bytes.find("total_connections_received:3") != std::string::npos,
            true)
      << ask({"INFO", "stats"}).bytes;
}

// Answers a RESP server gives to any first command of a store, whatever that is.
TEST(RedisReplies, HostileOnesAreRefusedWithoutAllocation) {
  const std::string huge_line(200000, 'x');
  const std::string answers[] = {
      "$99999999999\r\n",
      "$9223372036854775807\r\n",
      "$99999999999999999999999\r\n",
      "$-5\r\n",
      "$5\r\nabcdeXY",
      "$\r\n",
      "$abc\r\n",
      "*1000000000\r\n",
      "*-7\r\n",
      "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
      ":12x\r\n",
      ":\r\n",
      "\r\n",
      "HTTP/1.1 400 Bad Request\r\n\r\n",
      huge_line,
      std::string("\0\0\0\0\r\n", 6),
  };
  for (const std::string& answer : answers) {
    ScriptedServer server([&](ScriptedServer::Peer& peer) {
      (void)peer.read_until("PING\r\n");
      peer.send("+PONG\r\n");
      (void)peer.read_until("\r\n");
      peer.send(answer);
      (void)peer.read_until("never");
    });
    const auto store = open("redis://127.0.0.1:" + std::to_string(server.port()),
                            {.deadline = milliseconds(2000)});
    EXPECT_TRUE(fails_with(store->stat("a"), ErrorCode::corrupt)) << answer.substr(0, 30);
    EXPECT_EQ(server.connections(), 1) << "what is no RESP is not asked again";
  }
}

TEST(RedisReplies, HostileManifestsAreRefused) {
  const auto with = [](uint64_t bytes, uint32_t part_bytes) {
    RedisManifest manifest;
    manifest.bytes = bytes;
    manifest.part_bytes = part_bytes;
    return manifest.serialize();
  };
  EXPECT_TRUE(succeeds(RedisManifest::parse("a", with(0, 0), true)));
  EXPECT_TRUE(succeeds(RedisManifest::parse("a", with(1 << 20, 4096), true)));
  for (const std::string& value :
       {with(UINT64_MAX, 1 << 20), with(1, 0), with(1 << 20, 0), with(0, 4096), with(1 << 20, 1),
        with(uint64_t{1} << 50, 4096), with(uint64_t{1} << 40, UINT32_MAX), std::string("x"),
        std::string(48, '\0'), with(1 << 20, 4096) + "x", with(0, 0).substr(1)}) {
    EXPECT_TRUE(fails_with(RedisManifest::parse("a", value, true), ErrorCode::corrupt, "'a'"));
  }
}

TEST(RedisReplies, AClusterSaysWhereToGo) {
  ScriptedServer server([&](ScriptedServer::Peer& peer) {
    (void)peer.read_until("PING\r\n");
    peer.send("+PONG\r\n");
    (void)peer.read_until("\r\n");
    peer.send("-MOVED 3999 127.0.0.1:6381\r\n");
  });
  const auto store = open("redis://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_TRUE(fails_with(store->stat("a"), ErrorCode::unsupported, "cluster"));
}

}  // namespace
}  // namespace kvcodec
