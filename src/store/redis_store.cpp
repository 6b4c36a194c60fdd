// SPDX-License-Identifier: Apache-2.0
#include "store/redis_store.h"

#include <algorithm>
#include <cstring>

#include "store/store_name.h"

namespace kvcodec {
namespace {

std::chrono::system_clock::time_point from_ms(uint64_t ms) {
  // A hostile number must not overflow the clock.
  constexpr uint64_t kMost = uint64_t{1} << 43;
  return std::chrono::system_clock::time_point(std::chrono::milliseconds(std::min(ms, kMost)));
}

std::string escape_glob(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("*?[]\\^").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

Result<std::unique_ptr<RedisStore>> RedisStore::open(const StoreUri& uri, StoreOptions options) {
  Config config{.shown = uri.shown, .prefix = "kvcodec:"};
  UriParams params(uri);
  uint64_t part_bytes = config.part_bytes;
  KVCODEC_CHECK(params.take_seconds("ttl", config.ttl));
  KVCODEC_CHECK(params.take_bytes("part_bytes", part_bytes));
  if (auto prefix = params.take("prefix")) config.prefix = *std::move(prefix);
  KVCODEC_CHECK(params.take_network(options));
  KVCODEC_CHECK(params.finish());
  if (part_bytes < RedisManifest::kLeastPart || part_bytes > RedisManifest::kMostPart) {
    return make_error(ErrorCode::invalid_argument,
                      "store URI '{}': part_bytes: expected 4K to 256M, found {}", uri.shown,
                      part_bytes);
  }
  config.part_bytes = part_bytes;
  if (config.prefix.find_first_of("{}") != std::string::npos) {
    return make_error(ErrorCode::invalid_argument,
                      "store URI '{}': prefix: '{{' and '}}' mark the hash tags of keys",
                      uri.shown);
  }
  if (options.max_bytes > 0) {
    return make_error(ErrorCode::unsupported,
                      "store '{}': max_bytes: a Redis server bounds itself; set its maxmemory and "
                      "maxmemory-policy",
                      uri.shown);
  }
  RedisLogin login{uri.user, uri.password, 0};
  std::string_view database = uri.path;
  if (database.starts_with('/')) database.remove_prefix(1);
  for (const char c : database) {
    if (c < '0' || c > '9' || login.database > 9999) {
      return make_error(ErrorCode::invalid_argument,
                        "store URI '{}': expected the database's number as the path", uri.shown);
    }
    login.database = login.database * 10 + static_cast<uint64_t>(c - '0');
  }
  if (uri.host.empty()) {
    return make_error(ErrorCode::invalid_argument,
                      "store URI '{}': expected redis://host, found no host", uri.shown);
  }
  NetAddress address{uri.host, uri.port == 0 ? uint16_t{6379} : uri.port, nullptr};
  if (uri.scheme == "rediss") {
    KVCODEC_TRY(address.tls, TlsContext::make(options.ca_file));
  }
  return std::unique_ptr<RedisStore>(
      new RedisStore(std::move(config), std::move(address), std::move(login), options));
}

std::string RedisStore::key(std::string_view name) const {
  return fmt::format("{}{{{}}}", config_.prefix, name);
}

std::string RedisStore::part_key(std::string_view name, const RedisManifest& manifest,
                                 uint64_t part) const {
  std::string key = fmt::format("{}{{{}}}:", config_.prefix, name);
  for (const std::byte b : manifest.version) {
    fmt::format_to(std::back_inserter(key), "{:02x}", static_cast<unsigned>(b));
  }
  fmt::format_to(std::back_inserter(key), ":{}", part);
  return key;
}

Result<std::string> RedisStore::read_manifest(Loan& loan, std::string_view name,
                                              Deadline deadline) {
  const std::string last = std::to_string(RedisManifest::kBytes + RedisManifest::kInlineBytes);
  KVCODEC_CHECK(loan->send({"GETRANGE", key(name), "0", last}, deadline));
  KVCODEC_CHECK(loan->flush(deadline));
  KVCODEC_TRY(RedisReply reply, loan->read(deadline));
  if (reply.kind != RedisReply::Kind::bulk) return unexpected_reply("read the manifest", reply);
  return std::move(reply.bytes);
}

Result<size_t> RedisStore::get(std::string_view name, std::span<std::byte> out, uint64_t offset) {
  KVCODEC_CHECK(validate_name(name));
  return with_retries<size_t>("get", name, [&](Loan& loan, Deadline deadline, bool) {
    return try_get(loan, name, out, offset, deadline);
  });
}

Result<size_t> RedisStore::try_get(Loan& loan, std::string_view name, std::span<std::byte> out,
                                   uint64_t offset, Deadline deadline) {
  std::array<std::byte, 16> lost{};
  for (int race = 0; race < kMaxRaces; ++race) {
    KVCODEC_TRY(const std::string value, read_manifest(loan, name, deadline));
    if (value.empty()) return no_redis_object(name);
    KVCODEC_TRY(const RedisManifest manifest, RedisManifest::parse(name, value, true));
    if (offset >= manifest.bytes || out.empty()) return size_t{0};
    const size_t n = static_cast<size_t>(std::min<uint64_t>(out.size(), manifest.bytes - offset));
    if (manifest.part_bytes == 0) {
      std::memcpy(out.data(), value.data() + RedisManifest::kBytes + offset, n);
      return n;
    }
    // The version whose parts were missing is still the one: they were evicted.
    if (race > 0 && manifest.version == lost) return no_redis_object(name);
    KVCODEC_TRY(const bool whole, read_parts(loan, name, manifest, out.first(n), offset, deadline));
    if (whole) return n;
    lost = manifest.version;
  }
  return make_error(ErrorCode::unavailable, "it was replaced {} times while it was read",
                    kMaxRaces);
}

Result<bool> RedisStore::read_parts(Loan& loan, std::string_view name,
                                    const RedisManifest& manifest, std::span<std::byte> out,
                                    uint64_t offset, Deadline deadline) {
  const uint64_t size = manifest.part_bytes;
  const uint64_t last_byte = offset + out.size() - 1;
  const uint64_t first = offset / size, last = last_byte / size;
  // Where in its part a part's share begins, and its length.
  const auto begin_of = [&](uint64_t part) { return part == first ? offset % size : 0; };
  const auto length_of = [&](uint64_t part) {
    const uint64_t end = part == last ? last_byte % size + 1 : size;
    return static_cast<size_t>(end - begin_of(part));
  };
  bool whole = true;
  uint64_t sent = first;
  for (uint64_t part = first; part <= last; ++part) {
    for (; sent <= last && sent < part + kWindow; ++sent) {
      const uint64_t begin = begin_of(sent);
      KVCODEC_CHECK(loan->send({"GETRANGE", part_key(name, manifest, sent), std::to_string(begin),
                                std::to_string(begin + length_of(sent) - 1)},
                               deadline));
    }
    KVCODEC_CHECK(loan->flush(deadline));
    const size_t length = length_of(part);
    KVCODEC_TRY(const auto n, loan->read_into(out.first(length), deadline));
    whole = whole && n == length;
    out = out.subspan(length);
  }
  return whole;
}

Result<ObjectStat> RedisStore::stat(std::string_view name) {
  KVCODEC_CHECK(validate_name(name));
  return with_retries<ObjectStat>(
      "stat", name, [&](Loan& loan, Deadline deadline, bool) -> Result<ObjectStat> {
        const std::string last = std::to_string(RedisManifest::kBytes - 1);
        KVCODEC_CHECK(loan->send({"GETRANGE", key(name), "0", last}, deadline));
        KVCODEC_CHECK(loan->flush(deadline));
        KVCODEC_TRY(const RedisReply reply, loan->read(deadline));
        if (reply.kind != RedisReply::Kind::bulk)
          return unexpected_reply("read the manifest", reply);
        if (reply.bytes.empty()) return no_redis_object(name);
        KVCODEC_TRY(const RedisManifest manifest, RedisManifest::parse(name, reply.bytes, false));
        return ObjectStat{std::string(name), manifest.bytes, from_ms(manifest.put_ms)};
      });
}

Status RedisStore::stat_keys(Loan& loan, const std::vector<RedisReply>& keys,
                             std::vector<ObjectStat>& stats, Deadline deadline) {
  const std::string last = std::to_string(RedisManifest::kBytes - 1);
  for (const RedisReply& at : keys) {
    KVCODEC_CHECK(loan->send({"GETRANGE", at.bytes, "0", last}, deadline));
  }
  KVCODEC_CHECK(loan->flush(deadline));
  for (const RedisReply& at : keys) {
    KVCODEC_TRY(const RedisReply reply, loan->read(deadline));
    std::string_view name = at.bytes;
    if (name.size() < config_.prefix.size() + 2) continue;
    name.remove_prefix(config_.prefix.size() + 1);
    name.remove_suffix(1);
    // Other programs' keys, of other types even; and what went since it was listed.
    if (reply.kind != RedisReply::Kind::bulk || !validate_name(name).ok()) continue;
    const auto manifest = RedisManifest::parse(name, reply.bytes, false);
    if (!manifest.ok()) continue;
    stats.push_back({std::string(name), manifest->bytes, from_ms(manifest->put_ms)});
  }
  return ok_status();
}

Result<std::vector<ObjectStat>> RedisStore::list(std::string_view prefix) {
  const std::string pattern =
      fmt::format("{}{{{}*}}", escape_glob(config_.prefix), escape_glob(prefix));
  using Stats = std::vector<ObjectStat>;
  auto listed =
      with_retries<Stats>("list", "*", [&](Loan& loan, Deadline deadline, bool) -> Result<Stats> {
        Stats stats;
        std::string cursor = "0";
        do {
          KVCODEC_CHECK(loan->send({"SCAN", cursor, "MATCH", pattern, "COUNT", "1000"}, deadline));
          KVCODEC_CHECK(loan->flush(deadline));
          KVCODEC_TRY(const RedisReply page, loan->read(deadline));
          if (page.kind != RedisReply::Kind::array || page.items.size() != 2 ||
              page.items[0].kind != RedisReply::Kind::bulk ||
              page.items[1].kind != RedisReply::Kind::array) {
            return unexpected_reply("scan", page);
          }
          cursor = page.items[0].bytes;
          KVCODEC_CHECK(stat_keys(loan, page.items[1].items, stats, deadline));
          if (deadline.over()) {
            return make_error(ErrorCode::unavailable, "the deadline is over");
          }
        } while (cursor != "0");
        return stats;
      });
  if (!listed.ok()) return listed;
  // SCAN may return a key twice.
  std::sort(listed->begin(), listed->end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twice = std::unique(listed->begin(), listed->end(),
                                 [](const auto& a, const auto& b) { return a.name == b.name; });
  listed->erase(twice, listed->end());
  return listed;
}

}  // namespace kvcodec
