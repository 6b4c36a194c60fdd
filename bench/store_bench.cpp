// SPDX-License-Identifier: Apache-2.0
// Throughput of stores against real servers on the loopback interface, each beside the bare way to
// move the same bytes to or from the same server, in turn, the best of each: what the store costs.
//
// Usage: store_bench [--repeat N] [--json]
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>

#include "base/stopwatch.h"
#include "nginx_server.h"
#include "redis_server.h"
#include "scripted_server.h"
#include "sealed_bytes.h"
#include "store/posix_file.h"
#include "store/redis_connection.h"

namespace kvcodec {
namespace {

constexpr size_t kObject = size_t{16} << 20, kRange = size_t{256} << 10;
constexpr std::chrono::milliseconds kPatience{60000};

template <typename T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().message);
  return *std::move(result);
}

struct Row {
  std::string store, what, beside;
  double mb_s = 0, beside_mb_s = 0;
};

class Bench {
 public:
  explicit Bench(int repeat) : repeat_(repeat) {}

  // Both move `bytes`; they take turns.
  void compare(const std::string& store, const std::string& what, const std::string& beside,
               size_t bytes, const std::function<void()>& ours, const std::function<void()>& bare) {
    double best = 1e9, best_bare = 1e9;
    for (int i = 0; i < repeat_ + 1; ++i) {
      const Stopwatch watch;
      ours();
      const double took = watch.seconds();
      const Stopwatch bare_watch;
      bare();
      const double bare_took = bare_watch.seconds();
      if (i == 0) continue;  // opens connections
      best = std::min(best, took);
      best_bare = std::min(best_bare, bare_took);
    }
    const double mb = static_cast<double>(bytes) / 1e6;
    rows_.push_back({store, what, beside, mb / best, mb / best_bare});
  }

  void print(bool json) const {
    if (json) fmt::print("[");
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      if (json) {
        fmt::print(
            "{}\n{{\"store\": \"{}\", \"what\": \"{}\", \"mb_s\": {:.1f}, \"beside\": \"{}\", "
            "\"beside_mb_s\": {:.1f}, \"ratio\": {:.3f}}}",
            i == 0 ? "" : ",", row.store, row.what, row.mb_s, row.beside, row.beside_mb_s,
            row.mb_s / row.beside_mb_s);
      } else {
        fmt::print("{:<8} {:<22} {:8.0f} MB/s   {:<34} {:8.0f} MB/s   {:.2f}\n", row.store,
                   row.what, row.mb_s, row.beside, row.beside_mb_s, row.mb_s / row.beside_mb_s);
      }
    }
    if (json) fmt::print("]\n");
  }

 private:
  const int repeat_;
  std::vector<Row> rows_;
};

// HTTP by hand over one connection that stays open.
class BareHttp {
 public:
  explicit BareHttp(uint16_t port)
      : stream_(must(NetStream::connect({"127.0.0.1", port, nullptr}, Deadline::in(kPatience),
                                        kPatience))) {}
  void get(const std::string& path, size_t first, std::span<std::byte> out) {
    send(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\nRange: bytes={}-{}\r\n\r\n", path, first,
                     first + out.size() - 1));
    const std::string rest = read_head();
    std::memcpy(out.data(), rest.data(), rest.size());
    for (size_t at = rest.size(); at < out.size();) {
      at += must(stream_.read_some(out.subspan(at), Deadline::in(kPatience)));
    }
  }
  void put(const std::string& path, std::span<const std::byte> bytes) {
    send(fmt::format("PUT {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", path,
                     bytes.size()));
    must(stream_.write_all(bytes, Deadline::in(kPatience)));
    (void)read_head();
  }

 private:
  void send(const std::string& text) {
    must(stream_.write_all(std::as_bytes(std::span(text)), Deadline::in(kPatience)));
  }
  // Up to the body; what of that has come already.
  std::string read_head() {
    std::string head;
    size_t end = 0;
    while ((end = head.find("\r\n\r\n")) == std::string::npos) {
      std::byte piece[4096];
      const size_t n = must(stream_.read_some(piece, Deadline::in(kPatience)));
      head.append(reinterpret_cast<const char*>(piece), n);
    }
    return head.substr(end + 4);
  }
  NetStream stream_;
};

std::unique_ptr<Store> open(const std::string& uri, const StoreOptions& options = {}) {
  return must(open_store(uri, options));
}

void bench_file(Bench& bench, std::span<const std::byte> bytes, std::span<std::byte> out) {
  const TempDir dir;
  const auto store = open("file://" + (dir / "store"));
  const std::string path = dir / "bare", fresh = dir / "fresh";
  must(store->put("a", bytes));
  bench.compare(
      "file", "put 16 MiB", "write, fsync, rename", kObject, [&] { must(store->put("a", bytes)); },
      [&] {
        const UniqueFd fd = open_at(AT_FDCWD, fresh.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
        must(write_all(fd.get(), bytes, fresh));
        must(sync_file(fd.get(), fresh));
        std::filesystem::rename(fresh, path);
      });
  const auto read_bare = [&](size_t first, size_t n) {
    const UniqueFd fd = open_at(AT_FDCWD, path.c_str(), O_RDONLY);
    must(read_at(fd.get(), out.first(n), first, path));
  };
  bench.compare(
      "file", "get 16 MiB", "open, pread", kObject, [&] { must(store->get("a", out, 0)); },
      [&] { read_bare(0, kObject); });
  bench.compare(
      "file", "range 256 KiB", "open, pread", kRange,
      [&] { must(store->get("a", out.first(kRange), 5000000)); },
      [&] { read_bare(5000000, kRange); });
}

void bench_redis(Bench& bench, std::span<const std::byte> bytes, std::span<std::byte> out) {
  const RedisServer server;
  const auto store = open(server.uri());
  const Deadline never = Deadline::in(std::chrono::milliseconds(0));
  auto bare =
      must(RedisConnection::open({"127.0.0.1", server.port(), nullptr}, {}, never, kPatience));
  const auto bare_put = [&] {
    must(bare.send({"SET", "bare"}, bytes, never));
    must(bare.flush(never));
    (void)must(bare.read(never));
  };
  const auto bare_get = [&](size_t first, size_t n) {
    must(bare.send({"GETRANGE", "bare", std::to_string(first), std::to_string(first + n - 1)},
                   never));
    must(bare.flush(never));
    (void)must(bare.read_into(out.first(n), never));
  };
  must(store->put("a", bytes));
  bench.compare(
      "redis", "put 16 MiB", "one SET, bare socket", kObject, [&] { must(store->put("a", bytes)); },
      bare_put);
  bench.compare(
      "redis", "get 16 MiB", "one GETRANGE, bare socket", kObject,
      [&] { must(store->get("a", out, 0)); }, [&] { bare_get(0, kObject); });
  bench.compare(
      "redis", "range 256 KiB", "one GETRANGE, bare socket", kRange,
      [&] { must(store->get("a", out.first(kRange), 5000000)); },
      [&] { bare_get(5000000, kRange); });
}

void bench_http(Bench& bench, std::span<const std::byte> bytes, std::span<std::byte> out) {
  const Nginx nginx;
  nginx.write("a", bytes);
  BareHttp bare(nginx.port());
  const auto http = open(nginx.url("/kv"));
  ::setenv("AWS_ACCESS_KEY_ID", "key", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  // nginx reads past the signature, so this is S3 without a server's own work. Its folder is the
  // bucket: path style.
  const auto s3 = open(fmt::format("s3://kv0?endpoint=http%3A%2F%2F127.0.0.1%3A{}", nginx.port()));
  std::filesystem::create_directory_symlink(nginx.folder() / "kv", nginx.folder() / "kv0");
  for (const auto& [name, store] : {std::pair{"http", http.get()}, {"s3", s3.get()}}) {
    bench.compare(
        name, "get 16 MiB", "GET from nginx, bare socket", kObject,
        [&, at = store] { must(at->get("a", out, 0)); }, [&] { bare.get("/kv/a", 0, out); });
    bench.compare(
        name, "range 256 KiB", "GET from nginx, bare socket", kRange,
        [&, at = store] { must(at->get("a", out.first(kRange), 5000000)); },
        [&] { bare.get("/kv/a", 5000000, out.first(kRange)); });
  }
  ScriptedServer sink(ScriptedServer::http([](const std::string&, int) {
    return std::string("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  }));
  const auto s3_sink =
      open(fmt::format("s3://kv0?endpoint=http%3A%2F%2F127.0.0.1%3A{}", sink.port()));
  BareHttp bare_sink(sink.port());
  bench.compare(
      "s3", "put 16 MiB", "PUT to a sink, bare socket", kObject,
      [&] { must(s3_sink->put("a", bytes)); }, [&] { bare_sink.put("/kv/a", bytes); });
}

void bench_sealed(Bench& bench, std::span<const std::byte> bytes, std::span<std::byte> out) {
  const TempDir dir;
  write_text(dir / "key", std::string(64, '1'));
  std::filesystem::permissions(dir / "key", std::filesystem::perms::owner_read);
  const auto sealed = open("mem:", {.encryption_key_file = dir / "key"}), bare = open("mem:");
  must(sealed->put("a", bytes));
  must(bare->put("a", bytes));
  bench.compare(
      "sealed", "put 16 MiB", "the memory store below", kObject,
      [&] { must(sealed->put("a", bytes)); }, [&] { must(bare->put("a", bytes)); });
  bench.compare(
      "sealed", "get 16 MiB", "the memory store below", kObject,
      [&] { must(sealed->get("a", out, 0)); }, [&] { must(bare->get("a", out, 0)); });
}

int run(int count, char** words) {
  int repeat = 9;
  bool json = false;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(words[i], "--json") == 0) {
      json = true;
    } else if (std::strcmp(words[i], "--repeat") == 0 && i + 1 < count) {
      repeat = std::max(1, std::atoi(words[++i]));
    } else {
      fmt::print(stderr, "Usage: store_bench [--repeat N] [--json]\n");
      return 2;
    }
  }
  const auto bytes = make_sealed("a", 1, kObject);
  std::vector<std::byte> out(kObject);
  Bench bench(repeat);
  bench_file(bench, bytes, out);
  bench_sealed(bench, bytes, out);
  bench_redis(bench, bytes, out);
  bench_http(bench, bytes, out);
  bench.print(json);
  return 0;
}

}  // namespace
}  // namespace kvcodec

int main(int count, char** words) {
  try {
    return kvcodec::run(count, words);
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}
