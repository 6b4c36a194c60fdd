// SPDX-License-Identifier: Apache-2.0
#include "raw_prefix.h"

#include <fmt/format.h>

#include <cstring>

#include "clock.h"

namespace kvcodec::tools {

namespace {

// Calls visit(bytes within the chunk's contiguous form, bytes within the geometry, length) for
// every head row of tokens [first, first + count).
template <typename Visit>
void for_each_row(const KvGeometry& geometry, TokenRange range, const Visit& visit) {
  const KvShape& shape = geometry.shape;
  const KvGeometry flat = KvGeometry::contiguous(shape, range.count);
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (KvKind kind : kKvKinds) {
      const size_t row = shape.head_dim(kind) * dtype_bytes(shape.dtype);
      for (uint32_t token = 0; token < range.count; ++token) {
        for (uint32_t head = 0; head < shape.kv_heads; ++head) {
          visit(flat.element_offset(kind, layer, token, head, 0),
                geometry.element_offset(kind, layer, range.first + token, head, 0), row);
        }
      }
    }
  }
}

}  // namespace

Result<uint64_t> publish_raw(Store& store, const Digest& ns, std::span<const int32_t> tokens,
                             const KvSource& source, uint32_t chunk_tokens) {
  const auto keys = chunk_keys(ns, tokens, chunk_tokens);
  std::vector<std::byte> bytes(source.geometry->shape.token_bytes() * chunk_tokens);
  for (size_t i = 0; i < keys.size(); ++i) {
    const TokenRange range{static_cast<uint32_t>(i * chunk_tokens), chunk_tokens};
    for_each_row(*source.geometry, range, [&](size_t flat, size_t at, size_t length) {
      std::memcpy(bytes.data() + flat, source.memory.data() + at, length);
    });
    KVCODEC_CHECK(store.put(object_name(ns, keys[i], "raw"), bytes));
  }
  return keys.size() * bytes.size();
}

Result<FetchReport> fetch_raw(Store& store, const Digest& ns, std::span<const int32_t> tokens,
                              const KvTarget& target, uint32_t chunk_tokens) {
  const auto keys = chunk_keys(ns, tokens, chunk_tokens);
  const size_t chunk_bytes = target.geometry->shape.token_bytes() * chunk_tokens;
  FetchReport report;
  const auto start = Clock::now();
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string name = object_name(ns, keys[i], "raw");
    const auto transfer = Clock::now();
    KVCODEC_TRY(const std::vector<std::byte> bytes, get_object(store, name, chunk_bytes));
    report.transfer_seconds += seconds_since(transfer);
    if (bytes.size() != chunk_bytes) {
      return Error{ErrorCode::corrupt,
                   fmt::format("{}: expected {} bytes, found {}", name, chunk_bytes, bytes.size())};
    }
    const auto restore = Clock::now();
    const TokenRange range{static_cast<uint32_t>(i * chunk_tokens), chunk_tokens};
    for_each_row(*target.geometry, range, [&](size_t flat, size_t at, size_t length) {
      std::memcpy(target.memory.data() + at, bytes.data() + flat, length);
    });
    report.decode_seconds += seconds_since(restore);
    report.object_bytes += bytes.size();
    ++report.chunks;
    report.tokens_restored += chunk_tokens;
  }
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace kvcodec::tools
