// SPDX-License-Identifier: Apache-2.0
// Encodes a chunk of random bits and decodes it.
#include <kvcodec/codec.h>
#include <kvcodec/fetch.h>
#include <kvcodec/store.h>
#include <kvcodec/version.h>

#include <cstdio>
#include <cstring>

int main() {
  using namespace kvcodec;
  const KvShape shape{
      .layers = 2, .kv_heads = 2, .key_dim = 32, .value_dim = 16, .dtype = DType::bf16};
  const uint32_t tokens = 48;
  const KvGeometry flat = KvGeometry::contiguous(shape, tokens);
  std::vector<std::byte> cache(flat.contiguous_bytes());
  uint32_t state = 1;
  for (std::byte& byte : cache) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  const ChunkId id{.ns = sha256(std::as_bytes(std::span("namespace"))), .key = {}};
  const auto object = encode_chunk({cache, &flat}, {0, tokens}, id, {});
  if (!object.ok()) {
    std::fprintf(stderr, "encode: %s\n", object.error().message.c_str());
    return 1;
  }
  std::vector<std::byte> restored(cache.size());
  const Status status = decode_chunk(*object, {restored, &flat}, 0, {.expected = &id});
  if (!status.ok()) {
    std::fprintf(stderr, "decode: %s\n", status.error().message.c_str());
    return 1;
  }
  const bool same = std::memcmp(cache.data(), restored.data(), cache.size()) == 0;
  std::printf("kvcodec %s: %zu bytes in %zu, %s\n", KVCODEC_VERSION_STRING, cache.size(),
              object->size(), same ? "restored bit by bit" : "NOT restored");
  return same ? 0 : 1;
}
