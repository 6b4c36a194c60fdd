// SPDX-License-Identifier: Apache-2.0
// How a RedisStore changes objects: parts first, then one transaction on the manifest.
#include <openssl/rand.h>

#include <algorithm>

#include "store/redis_store.h"
#include "store/store_name.h"

namespace kvcodec {
namespace {

// Parts that no manifest names are gone after this: their writer died.
constexpr std::chrono::milliseconds kOrphanTime = std::chrono::minutes(15);

uint64_t now_ms() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

Error no_redis_object(std::string_view name) {
  return make_error(ErrorCode::not_found, "no object '{}' in the Redis store", name);
}

Error unexpected_reply(std::string_view what, const RedisReply& reply) {
  if (reply.kind == RedisReply::Kind::error) return redis_error(what, reply.bytes);
  return make_error(ErrorCode::corrupt, "{}: the server's reply has the wrong type", what);
}

Status expect_ok(RedisConnection& connection, std::string_view what, Deadline deadline) {
  KVCODEC_TRY(const RedisReply reply, connection.read(deadline));
  if (reply.kind != RedisReply::Kind::text) return unexpected_reply(what, reply);
  return ok_status();
}

Status RedisStore::put(std::string_view name, std::span<const std::byte> bytes) {
  KVCODEC_CHECK(validate_name(name));
  return with_retries<std::monostate>("put", name, [&](Loan& loan, Deadline deadline, bool) {
    return try_put(loan, name, bytes, deadline);
  });
}

Status RedisStore::try_put(Loan& loan, std::string_view name, std::span<const std::byte> bytes,
                           Deadline deadline) {
  RedisManifest manifest;
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(manifest.version.data()),
                   static_cast<int>(manifest.version.size())) != 1) {
    return make_error(ErrorCode::internal, "no random numbers from OpenSSL");
  }
  manifest.bytes = bytes.size();
  manifest.put_ms = now_ms();
  if (bytes.size() > RedisManifest::kInlineBytes) {
    manifest.part_bytes = static_cast<uint32_t>(config_.part_bytes);
    KVCODEC_CHECK(send_parts(loan, name, manifest, bytes, deadline));
  }
  std::string value = manifest.serialize();
  if (manifest.part_bytes == 0)
    value.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (int race = 0; race < kMaxRaces; ++race) {
    KVCODEC_CHECK(loan->send({"WATCH", key(name)}, deadline));
    KVCODEC_TRY(const std::string old, [&]() -> Result<std::string> {
      KVCODEC_CHECK(loan->send(
          {"GETRANGE", key(name), "0", std::to_string(RedisManifest::kBytes - 1)}, deadline));
      KVCODEC_CHECK(loan->flush(deadline));
      KVCODEC_CHECK(expect_ok(*loan, "watch", deadline));
      KVCODEC_TRY(RedisReply reply, loan->read(deadline));
      if (reply.kind != RedisReply::Kind::bulk) return unexpected_reply("read the manifest", reply);
      return std::move(reply.bytes);
    }());
    KVCODEC_TRY(const bool done, replace(loan, name, old, value, &manifest, deadline));
    if (done) return ok_status();
  }
  return make_error(ErrorCode::unavailable, "others replaced it {} times meanwhile", kMaxRaces);
}

Status RedisStore::send_parts(Loan& loan, std::string_view name, const RedisManifest& manifest,
                              std::span<const std::byte> bytes, Deadline deadline) {
  const std::string orphan_ms = std::to_string(kOrphanTime.count());
  std::optional<Error> failed;
  uint64_t sent = 0, acknowledged = 0;
  const auto acknowledge = [&]() -> Status {
    KVCODEC_TRY(const RedisReply reply, loan->read(deadline));
    ++acknowledged;
    if (reply.kind != RedisReply::Kind::text && !failed)
      failed = unexpected_reply("store a part", reply);
    return ok_status();
  };
  for (uint64_t part = 0; part < manifest.parts() && !failed; ++part) {
    const uint64_t begin = part * manifest.part_bytes;
    const uint64_t n = std::min<uint64_t>(manifest.part_bytes, bytes.size() - begin);
    // PSETEX rather than SET with PX: the value comes last.
    KVCODEC_CHECK(loan->send({"PSETEX", part_key(name, manifest, part), orphan_ms},
                             bytes.subspan(begin, n), deadline));
    ++sent;
    if (sent - acknowledged > kWindow) {
      KVCODEC_CHECK(loan->flush(deadline));
      KVCODEC_CHECK(acknowledge());
    }
  }
  KVCODEC_CHECK(loan->flush(deadline));
  while (acknowledged < sent) KVCODEC_CHECK(acknowledge());
  if (failed) return *std::move(failed);
  return ok_status();
}

Result<bool> RedisStore::replace(Loan& loan, std::string_view name, std::string_view old,
                                 std::string_view value, const RedisManifest* manifest,
                                 Deadline deadline) {
  size_t commands = 1;
  const std::string ttl_ms = std::to_string(config_.ttl.count());
  KVCODEC_CHECK(loan->send({"MULTI"}, deadline));
  if (manifest != nullptr) {
    for (uint64_t part = 0; part < manifest->parts(); ++part, ++commands) {
      const std::string at = part_key(name, *manifest, part);
      if (config_.ttl.count() > 0) {
        KVCODEC_CHECK(loan->send({"PEXPIRE", at, ttl_ms}, deadline));
      } else {
        KVCODEC_CHECK(loan->send({"PERSIST", at}, deadline));
      }
    }
    if (config_.ttl.count() > 0) {
      KVCODEC_CHECK(loan->send({"PSETEX", key(name), ttl_ms, value}, deadline));
    } else {
      KVCODEC_CHECK(loan->send({"SET", key(name), value}, deadline));
    }
  } else {
    KVCODEC_CHECK(loan->send({"UNLINK", key(name)}, deadline));
  }
  // What is no manifest has no parts, and is replaced all the same.
  const auto replaced = RedisManifest::parse(name, old, false);
  if (!old.empty() && replaced.ok() && replaced->parts() > 0) {
    std::vector<std::string> command = {"UNLINK"};
    for (uint64_t part = 0; part < replaced->parts(); ++part) {
      command.push_back(part_key(name, *replaced, part));
    }
    KVCODEC_CHECK(loan->send(command, deadline));
    ++commands;
  }
  KVCODEC_CHECK(loan->send({"EXEC"}, deadline));
  KVCODEC_CHECK(loan->flush(deadline));
  for (size_t i = 0; i < commands + 1; ++i) {
    // MULTI's +OK and each command's +QUEUED. One that is refused here makes EXEC fail as a whole.
    const Status queued = expect_ok(*loan, "change the object", deadline);
    if (!queued.ok()) return queued.error();
  }
  KVCODEC_TRY(const RedisReply done, loan->read(deadline));
  if (done.is_nil()) return false;
  if (done.kind != RedisReply::Kind::array || done.items.size() != commands) {
    return unexpected_reply("change the object", done);
  }
  for (const RedisReply& item : done.items) {
    if (item.kind == RedisReply::Kind::error) return redis_error("change the object", item.bytes);
  }
  const uint64_t parts = manifest == nullptr ? 0 : manifest->parts();
  for (uint64_t part = 0; part < parts; ++part) {
    if (done.items[part].number != 1) {
      return make_error(ErrorCode::io,
                        "the server evicted part {} of {} while the object was written: its memory "
                        "is too small",
                        part, parts);
    }
  }
  return true;
}

Status RedisStore::remove(std::string_view name) {
  KVCODEC_CHECK(validate_name(name));
  return with_retries<std::monostate>("remove", name,
                                      [&](Loan& loan, Deadline deadline, bool again) {
                                        return try_remove(loan, name, deadline, again);
                                      });
}

Status RedisStore::try_remove(Loan& loan, std::string_view name, Deadline deadline, bool again) {
  for (int race = 0; race < kMaxRaces; ++race) {
    KVCODEC_CHECK(loan->send({"WATCH", key(name)}, deadline));
    KVCODEC_CHECK(loan->flush(deadline));
    KVCODEC_CHECK(expect_ok(*loan, "watch", deadline));
    KVCODEC_TRY(const std::string old, read_manifest(loan, name, deadline));
    if (old.empty()) {
      KVCODEC_CHECK(loan->send({"UNWATCH"}, deadline));
      KVCODEC_CHECK(loan->flush(deadline));
      KVCODEC_CHECK(expect_ok(*loan, "unwatch", deadline));
      // An earlier attempt of ours may have removed it, and its answer was lost.
      if (again) return ok_status();
      return no_redis_object(name);
    }
    KVCODEC_TRY(const bool done, replace(loan, name, old, {}, nullptr, deadline));
    if (done) return ok_status();
  }
  return make_error(ErrorCode::unavailable, "others replaced it {} times meanwhile", kMaxRaces);
}

}  // namespace kvcodec
