// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "fetch/manifest.h"
#include "kvcodec/fetch.h"

namespace kvcodec {
namespace {

Status check_renditions(std::span<const std::string> renditions, const PublishOptions& options) {
  if (renditions.empty() || renditions.size() > kMaxRenditions)
    return make_error(ErrorCode::invalid_argument, "publish: expected 1 to {} renditions, found {}",
                      kMaxRenditions, renditions.size());
  for (size_t i = 0; i < renditions.size(); ++i) {
    KVCODEC_TRY(const Rendition rendition, parse_rendition(renditions[i]));
    if (std::count(renditions.begin(), renditions.end(), renditions[i]) > 1)
      return make_error(ErrorCode::invalid_argument, "publish: rendition {} is named twice",
                        renditions[i]);
    if (!is_calibrated(rendition.tier)) continue;
    const Profile* profile = options.encode.profile;
    if (profile == nullptr)
      return make_error(ErrorCode::invalid_argument, "publish: rendition {} needs its profile",
                        renditions[i]);
    const std::string own = rendition_name(rendition.tier, profile, rendition.picture_height);
    if (own != renditions[i])
      return make_error(ErrorCode::invalid_argument,
                        "publish: rendition {} is of another profile, that of the one given is {}",
                        renditions[i], own);
  }
  return ok_status();
}

// The manifest that is there, or nothing where there is none or it is at fault: it is written anew.
Result<std::optional<Manifest>> read_old(Store& store, const Manifest& expected) {
  std::vector<std::byte> bytes(kMaxManifestBytes + 1);
  auto got = store.get(manifest_name(expected.ns, expected.key), bytes);
  if (!got.ok()) {
    if (got.error().code == ErrorCode::not_found) return std::optional<Manifest>{};
    return std::move(got.error());
  }
  auto parsed = parse_manifest(std::span(bytes).first(*got));
  if (!parsed.ok() ||
      !check_manifest(*parsed, expected.ns, expected.key, expected.chunk, expected.chunk_tokens)
           .ok())
    return std::optional<Manifest>{};
  return std::optional<Manifest>(*std::move(parsed));
}

// Adds what `old` knows of renditions that were not published now. What was evicted since is listed
// too: a reader finds that out, and takes another.
void merge(const Manifest& old, Manifest& manifest) {
  std::vector<std::string> names = manifest.renditions;
  std::vector<size_t> added;
  for (size_t r = 0; r < old.renditions.size() && names.size() < kMaxRenditions; ++r) {
    if (std::find(names.begin(), names.end(), old.renditions[r]) != names.end()) continue;
    names.push_back(old.renditions[r]);
    added.push_back(r);
  }
  if (added.empty()) return;
  std::vector<uint32_t> bytes;
  for (uint32_t c = manifest.first_chunk(); c <= manifest.chunk; ++c) {
    for (size_t r = 0; r < manifest.renditions.size(); ++r) bytes.push_back(manifest.size_of(c, r));
    for (size_t r : added) bytes.push_back(c < old.first_chunk() ? 0 : old.size_of(c, r));
  }
  manifest.renditions = std::move(names);
  manifest.bytes = std::move(bytes);
}

Status write_manifests(Store& store, const Digest& ns, std::span<const Digest> keys,
                       std::span<const std::string> renditions,
                       std::span<const PublishReport> reports, uint32_t chunk_tokens) {
  for (size_t chunk = 0; chunk < keys.size(); ++chunk) {
    Manifest manifest{ns, keys[chunk], static_cast<uint32_t>(chunk), chunk_tokens, {}, {}};
    manifest.renditions.assign(renditions.begin(), renditions.end());
    const size_t first = chunk + 1 - std::min<size_t>(chunk + 1, kManifestWindow);
    for (size_t c = first; c <= chunk; ++c)
      for (const PublishReport& report : reports) {
        const uint64_t bytes = report.chunk_bytes[c];
        const bool fits = bytes <= std::numeric_limits<uint32_t>::max();
        manifest.bytes.push_back(fits ? static_cast<uint32_t>(bytes) : 0);
      }
    KVCODEC_TRY(const auto old, read_old(store, manifest));
    if (old) merge(*old, manifest);
    const std::vector<std::byte> bytes = serialise_manifest(manifest);
    if (old && serialise_manifest(*old) == bytes) continue;
    KVCODEC_CHECK(store.put(manifest_name(ns, keys[chunk]), bytes));
  }
  return ok_status();
}

}  // namespace

Result<std::vector<PublishReport>> publish_renditions(Store& store, const Digest& ns,
                                                      std::span<const int32_t> tokens,
                                                      const KvSource& source,
                                                      std::span<const std::string> renditions,
                                                      const PublishOptions& options) {
  KVCODEC_CHECK(check_renditions(renditions, options));
  std::vector<PublishReport> reports;
  for (const std::string& name : renditions) {
    KVCODEC_TRY(const Rendition rendition, parse_rendition(name));
    PublishOptions own = options;
    own.rendition = name;
    own.encode.tier = rendition.tier;
    if (rendition.picture_height > 0) own.encode.max_picture_height = rendition.picture_height;
    KVCODEC_TRY(PublishReport report, publish_prefix(store, ns, tokens, source, own));
    reports.push_back(std::move(report));
  }
  const std::vector<Digest> keys = chunk_keys(ns, tokens, options.chunk_tokens);
  KVCODEC_CHECK(write_manifests(store, ns, keys, renditions, reports, options.chunk_tokens));
  return reports;
}

}  // namespace kvcodec
