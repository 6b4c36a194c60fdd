// SPDX-License-Identifier: Apache-2.0
// The stores behind a network, each against a real server. All tests of a program share it.
#include <atomic>
#include <stdexcept>

#include "http_front.h"
#include "link/link_proxy.h"
#include "redis_server.h"
#include "s3_server.h"
#include "store_kinds.h"

namespace kvcodec {
namespace {

StoreFixture open_on(std::shared_ptr<void> ground, const std::string& uri,
                     StoreOptions options = {}) {
  auto store = open_store(uri, options);
  if (!store.ok()) throw std::runtime_error(store.error().message);
  return {std::move(ground), nullptr, *std::move(store)};
}

// A prefix, so a store, of its own for each test.
std::string new_prefix() {
  static std::atomic<int> count{0};
  return fmt::format("t{}", count.fetch_add(1));
}

StoreFixture make_redis(uint64_t) {
  static const auto server = std::make_shared<RedisServer>();
  return open_on(server, server->uri("", "/3?prefix=" + new_prefix()));
}

// Parts so small that many objects have some.
StoreFixture make_redis_parts(uint64_t) {
  static const auto server = std::make_shared<RedisServer>();
  return open_on(server, server->uri("", "?part_bytes=4096&prefix=" + new_prefix()));
}

StoreFixture make_rediss(uint64_t) {
  static const auto server = std::make_shared<RedisServer>(
      RedisServer::Options{.tls = true, .arguments = {"--requirepass", "a b/c?d@e"}});
  return open_on(server, server->uri(":a%20b%2Fc%3Fd%40e@", "?prefix=" + new_prefix()),
                 {.ca_file = server->ca_file()});
}

// It takes seconds to start.
std::shared_ptr<S3Server> s3_server() {
  static const auto server = std::make_shared<S3Server>();
  return server;
}

StoreFixture make_s3(uint64_t) {
  const auto server = s3_server();
  return open_on(server, server->uri(new_prefix() + "/p"));
}

// Parts so small that many objects have some.
StoreFixture make_s3_parts(uint64_t) {
  const auto server = s3_server();
  return open_on(server, server->uri(new_prefix(), "&multipart_bytes=64K&part_bytes=256K"));
}

// A wire that breaks every few megabytes and stops more often.
template <typename Server>
struct Distant {
  explicit Distant(std::shared_ptr<Server> behind) : server(std::move(behind)) {}
  std::shared_ptr<Server> server;
  LinkProxy proxy{
      {.to_port = server->port(),
       .trace = WireTrace::constant(20e9),
       .faults = {.seed = 1, .bytes_per_reset = 2e6, .bytes_per_stop = 3e5, .stop_ms = 2}}};
};

StoreFixture make_redis_flaky(uint64_t) {
  static const auto distant =
      std::make_shared<Distant<RedisServer>>(std::make_shared<RedisServer>());
  return open_on(distant, fmt::format("redis://127.0.0.1:{}?part_bytes=64K&prefix={}",
                                      distant->proxy.port(), new_prefix()));
}

StoreFixture make_s3_flaky(uint64_t) {
  static const auto distant = std::make_shared<Distant<S3Server>>(s3_server());
  return open_on(distant, fmt::format("s3://bucket/{}?endpoint=http%3A%2F%2F127.0.0.1%3A{}"
                                      "&multipart_bytes=512K&part_bytes=256K",
                                      new_prefix(), distant->proxy.port()));
}

StoreFixture make_http(uint64_t) { return {nullptr, nullptr, std::make_unique<HttpFront>(true)}; }

StoreFixture make_http_whole(uint64_t) {
  return {nullptr, nullptr, std::make_unique<HttpFront>(false)};
}

}  // namespace

std::vector<StoreKind> store_kinds() {
  constexpr bool kUnbounded = false, kOnce = true, kMaybeTwice = false;
  return {
      {"redis", make_redis, kUnbounded, kOnce, 2, RedisServer::missing},
      {"redis_parts", make_redis_parts, kUnbounded, kOnce, 2, RedisServer::missing},
      {"rediss", make_rediss, kUnbounded, kOnce, 2, RedisServer::missing},
      {"s3", make_s3, kUnbounded, kMaybeTwice, 10, S3Server::missing},
      {"s3_parts", make_s3_parts, kUnbounded, kMaybeTwice, 10, S3Server::missing},
      // A repeated removal finds nothing any more, and takes that for its own success.
      {"redis_flaky", make_redis_flaky, kUnbounded, kMaybeTwice, 2, RedisServer::missing},
      {"s3_flaky", make_s3_flaky, kUnbounded, kMaybeTwice, 10, S3Server::missing},
      {"http", make_http, kUnbounded, kOnce, 2},
      {"http_whole", make_http_whole, kUnbounded, kOnce, 2},
  };
}

}  // namespace kvcodec
