// SPDX-License-Identifier: Apache-2.0
// Finds a prefix by its manifests.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/parallel.h"
#include "fetch/manifest.h"
#include "kvcodec/fetch.h"

namespace kvcodec {
namespace {

constexpr size_t kProbes = 8;  // gets in flight

class CatalogReader {
 public:
  CatalogReader(Store& store, const Digest& ns, std::vector<Digest> keys, uint32_t chunk_tokens)
      : store_(store), ns_(ns), keys_(std::move(keys)), chunk_tokens_(chunk_tokens) {}

  Result<PrefixCatalog> read() {
    KVCODEC_TRY(const size_t chunks, longest());
    KVCODEC_CHECK(cover(chunks));
    return assemble(chunks);
  }

 private:
  // Leading chunks up to the last that has a manifest, as a search with kProbes probes a round sees
  // it: where manifests were evicted in between it may find fewer, never more.
  Result<size_t> longest() {
    size_t known = 0, end = keys_.size();  // chunk known - 1 has a manifest, chunk `end` has none
    while (known < end) {
      std::vector<size_t> probes;
      for (size_t p = 1; p <= kProbes; ++p) {
        const size_t chunk = known + (end - known) * p / kProbes;
        if (chunk > known) probes.push_back(chunk - 1);
      }
      probes.erase(std::unique(probes.begin(), probes.end()), probes.end());
      KVCODEC_CHECK(load(probes));
      // The last probe first: a whole prefix is found although some within it lack theirs.
      const auto hit = std::find_if(probes.rbegin(), probes.rend(),
                                    [this](size_t chunk) { return found_.contains(chunk); });
      if (hit != probes.rbegin()) end = *std::prev(hit);
      if (hit != probes.rend()) known = *hit + 1;
    }
    return known;
  }

  // Loads manifests until windows cover [0, chunks), as far as there are any.
  Status cover(size_t chunks) {
    std::vector<size_t> wanted;
    for (size_t end = chunks; end > 0; end -= std::min<size_t>(end, kManifestWindow))
      wanted.push_back(end - 1);
    KVCODEC_CHECK(load(wanted));
    wanted.clear();
    for (size_t chunk = 0; chunk < chunks; ++chunk)
      if (window_over(chunk) == nullptr) wanted.push_back(chunk);
    return load(wanted);
  }

  const Manifest* window_over(size_t chunk) const {
    const auto next = found_.lower_bound(chunk);
    for (auto m = next; m != found_.end() && m->first < chunk + kManifestWindow; ++m)
      if (m->second.first_chunk() <= chunk) return &m->second;
    return nullptr;
  }

  PrefixCatalog assemble(size_t chunks) const {
    PrefixCatalog catalog;
    catalog.chunk_tokens = chunk_tokens_;
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      const Manifest* manifest = window_over(chunk);
      if (manifest == nullptr) break;
      std::vector<uint32_t> sizes(catalog.renditions.size());
      for (size_t r = 0; r < manifest->renditions.size(); ++r) {
        const uint32_t bytes = manifest->size_of(static_cast<uint32_t>(chunk), r);
        if (bytes == 0) continue;
        auto& names = catalog.renditions;
        const auto at = std::find(names.begin(), names.end(), manifest->renditions[r]);
        const auto column = static_cast<size_t>(at - names.begin());
        if (at == names.end()) names.push_back(manifest->renditions[r]);
        sizes.resize(names.size());
        sizes[column] = bytes;
      }
      if (std::all_of(sizes.begin(), sizes.end(), [](uint32_t s) { return s == 0; })) break;
      catalog.bytes.push_back(std::move(sizes));
    }
    for (auto& sizes : catalog.bytes) sizes.resize(catalog.renditions.size());
    return catalog;
  }

  Status load(const std::vector<size_t>& chunks) {
    std::vector<size_t> wanted;
    for (size_t chunk : chunks)
      if (!found_.contains(chunk)) wanted.push_back(chunk);
    std::vector<Result<std::optional<Manifest>>> loaded(wanted.size(), std::optional<Manifest>{});
    parallel_for(wanted.size(), static_cast<int>(kProbes),
                 [&](size_t i, int) { loaded[i] = load_one(wanted[i]); });
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!loaded[i].ok()) return std::move(loaded[i].error());
      if (*loaded[i]) found_.emplace(wanted[i], **std::move(loaded[i]));
    }
    return ok_status();
  }

  Result<std::optional<Manifest>> load_one(size_t chunk) const {
    std::vector<std::byte> bytes(kMaxManifestBytes + 1);  // the byte more shows one too large
    auto got = store_.get(manifest_name(ns_, keys_[chunk]), bytes);
    if (!got.ok()) {
      if (got.error().code == ErrorCode::not_found) return std::optional<Manifest>{};
      return std::move(got.error());
    }
    auto manifest = parse_manifest(std::span(bytes).first(*got));
    if (!manifest.ok() ||
        !check_manifest(*manifest, ns_, keys_[chunk], static_cast<uint32_t>(chunk), chunk_tokens_)
             .ok())
      return std::optional<Manifest>{};
    return std::optional<Manifest>(*std::move(manifest));
  }

  Store& store_;
  const Digest ns_;
  const std::vector<Digest> keys_;
  const uint32_t chunk_tokens_;
  std::map<size_t, Manifest> found_;  // by chunk
};

}  // namespace

Result<PrefixCatalog> read_catalog(Store& store, const Digest& ns, std::span<const int32_t> tokens,
                                   uint32_t chunk_tokens) {
  if (chunk_tokens == 0) return make_error(ErrorCode::invalid_argument, "fetch: chunk_tokens is 0");
  return CatalogReader(store, ns, chunk_keys(ns, tokens, chunk_tokens), chunk_tokens).read();
}

}  // namespace kvcodec
