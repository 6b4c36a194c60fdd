// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "store/aead_keys.h"

struct evp_cipher_ctx_st;

namespace kvcodec {

// AES-256-GCM of the segments of one object. Its key is HMAC-SHA256 of `purpose` and the salt under
// the store's key, so that no two objects share one, and the segment's number can be the nonce.
// One thread at a time.
class SegmentCipher {
 public:
  // `bound` goes into each tag: what must not be exchanged.
  SegmentCipher(const AeadKey& key, std::span<const std::byte> salt, std::string bound, bool seals);

  // `sealed` has room for the plain text and a tag of 16 bytes.
  void seal(uint64_t number, std::span<const std::byte> plain, std::span<std::byte> sealed);
  // False where the tag does not fit; `plain` is zeros then.
  bool open(uint64_t number, std::span<const std::byte> sealed, std::span<std::byte> plain);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
  std::string bound_;
};

}  // namespace kvcodec
