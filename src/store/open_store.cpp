// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "kvcodec/store.h"
#include "store/file_store.h"
#include "store/http_store.h"
#include "store/memory_store.h"
#include "store/redis_store.h"
#include "store/s3_store.h"
#include "store/sealed_store.h"
#include "store/store_uri.h"

namespace kvcodec {
namespace {

using Opened = Result<std::unique_ptr<Store>>;

Opened open_memory(const StoreUri& uri, const StoreOptions& options) {
  if (uri.has_authority || !uri.path.empty()) {
    return make_error(ErrorCode::invalid_argument, "store URI '{}': expected just mem:", uri.shown);
  }
  UriParams params(uri);
  StoreOptions own = options;
  KVCODEC_CHECK(params.take_bytes("max_bytes", own.max_bytes));
  KVCODEC_CHECK(params.finish());
  return std::unique_ptr<Store>(std::make_unique<MemoryStore>(own));
}

// "file:///path" (RFC 8089), percent-decoded.
Opened open_file(const StoreUri& uri, const StoreOptions& options) {
  if (!uri.has_authority || !uri.host.empty() || !uri.user.empty() || uri.port != 0 ||
      uri.path.empty()) {
    return make_error(ErrorCode::invalid_argument,
                      "store URI '{}': expected file:///absolute/path, without a host", uri.shown);
  }
  UriParams params(uri);
  FileStoreOptions file_options;
  file_options.max_bytes = options.max_bytes;
  KVCODEC_CHECK(params.take_bytes("max_bytes", file_options.max_bytes));
  KVCODEC_CHECK(params.finish());
  KVCODEC_TRY(auto store, FileStore::open(uri.path, file_options));
  return std::unique_ptr<Store>(std::move(store));
}

Opened open_redis(const StoreUri& uri, const StoreOptions& options) {
  KVCODEC_TRY(auto store, RedisStore::open(uri, options));
  return std::unique_ptr<Store>(std::move(store));
}

Opened open_s3(const StoreUri& uri, const StoreOptions& options) {
  KVCODEC_TRY(auto store, S3Store::open(uri, options));
  return std::unique_ptr<Store>(std::move(store));
}

Opened open_http(const StoreUri& uri, const StoreOptions& options) {
  KVCODEC_TRY(auto store, HttpStore::open(uri, options));
  return std::unique_ptr<Store>(std::move(store));
}

Opened open_plain(std::string_view uri, const StoreOptions& options);

// "tiered:?level=mem:?max_bytes=1G&level=file:///var/kv&level=s3://bucket/p": in a level's URI '&'
// and '%' are written %26 and %25.
Opened open_tiered(const StoreUri& uri, const StoreOptions& options) {
  UriParams params(uri);
  TieredOptions tiered;
  bool promote = true;
  const std::vector<std::string> level_uris = params.take_all("level");
  const std::string write = params.take("write").value_or("through");
  KVCODEC_CHECK(params.take_bool("promote", promote));
  KVCODEC_CHECK(params.take_bytes("promote_max_bytes", tiered.promote_max_bytes));
  KVCODEC_CHECK(params.take_bytes("queue_bytes", tiered.queue_bytes));
  KVCODEC_CHECK(params.finish());
  if (uri.has_authority || !uri.path.empty() || (write != "through" && write != "back")) {
    return make_error(
        ErrorCode::invalid_argument,
        "store URI '{}': expected tiered:?level=URI&level=URI... and write=through or "
        "write=back",
        uri.shown);
  }
  if (options.max_bytes > 0) {
    return make_error(ErrorCode::unsupported,
                      "store '{}': max_bytes: give each level its own, as mem:?max_bytes=1G",
                      uri.shown);
  }
  if (!promote) tiered.promote_max_bytes = 0;
  tiered.write_back = write == "back";
  std::vector<std::unique_ptr<Store>> levels;
  for (const std::string& level : level_uris) {
    KVCODEC_TRY(std::unique_ptr<Store> store, open_plain(level, options));
    levels.push_back(std::move(store));
  }
  return make_tiered_store(std::move(levels), tiered);
}

struct Scheme {
  std::string_view name;
  Opened (*open)(const StoreUri& uri, const StoreOptions& options);
};

constexpr Scheme kSchemes[] = {
    {"mem", open_memory}, {"file", open_file}, {"redis", open_redis}, {"rediss", open_redis},
    {"s3", open_s3},      {"http", open_http}, {"https", open_http},  {"tiered", open_tiered}};

std::string known_schemes() {
  std::string known;
  for (const Scheme& scheme : kSchemes) {
    known += fmt::format("{}{}:", known.empty() ? "" : ", ", scheme.name);
  }
  return known;
}

Opened open_plain(std::string_view uri, const StoreOptions& options) {
  if (uri.find(':') == std::string_view::npos) {
    return make_error(ErrorCode::invalid_argument,
                      "store URI '{}' has no scheme; this build knows {}", redact_uri(uri),
                      known_schemes());
  }
  const std::string_view scheme_name = uri.substr(0, uri.find(':'));
  for (const Scheme& scheme : kSchemes) {
    if (scheme.name != scheme_name) continue;
    KVCODEC_TRY(const StoreUri parsed, parse_store_uri(uri));
    return scheme.open(parsed, options);
  }
  return make_error(ErrorCode::unsupported, "store URI '{}': unknown scheme; this build knows {}",
                    redact_uri(uri), known_schemes());
}

}  // namespace

Result<std::unique_ptr<Store>> open_store(std::string_view uri, const StoreOptions& options) {
  KVCODEC_TRY(std::vector<AeadKey> keys, load_keys(options.encryption_key_file));
  KVCODEC_TRY(std::unique_ptr<Store> store, open_plain(uri, options));
  if (keys.empty()) return store;
  return std::unique_ptr<Store>(std::make_unique<SealedStore>(std::move(store), std::move(keys)));
}

}  // namespace kvcodec
