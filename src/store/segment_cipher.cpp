// SPDX-License-Identifier: Apache-2.0
#include "store/segment_cipher.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace kvcodec {
namespace {

constexpr int kTagBytes = 16;
constexpr std::string_view kPurpose = "kvcodec sealed object 1";
// OpenSSL wants a place even for nothing.
unsigned char nowhere;

const unsigned char* raw(std::span<const std::byte> bytes) {
  return bytes.empty() ? &nowhere : reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* raw(std::span<std::byte> bytes) {
  return bytes.empty() ? &nowhere : reinterpret_cast<unsigned char*>(bytes.data());
}

std::array<unsigned char, 12> nonce_of(uint64_t number) {
  std::array<unsigned char, 12> nonce{};
  std::memcpy(nonce.data(), &number, sizeof number);  // little-endian hosts only, see base/bytes.h
  return nonce;
}

}  // namespace

void SegmentCipher::Free::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

SegmentCipher::SegmentCipher(const AeadKey& key, std::span<const std::byte> salt, std::string bound,
                             bool seals)
    : context_(EVP_CIPHER_CTX_new()), bound_(std::move(bound)) {
  std::string label(kPurpose);
  label.append(reinterpret_cast<const char*>(salt.data()), salt.size());
  std::array<unsigned char, EVP_MAX_MD_SIZE> object_key;
  unsigned int size = 0;
  ::HMAC(EVP_sha256(), key.bytes().data(), static_cast<int>(key.bytes().size()),
         reinterpret_cast<const unsigned char*>(label.data()), label.size(), object_key.data(),
         &size);
  EVP_CipherInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr, object_key.data(), nullptr,
                    seals ? 1 : 0);
  ::OPENSSL_cleanse(object_key.data(), object_key.size());
}

void SegmentCipher::seal(uint64_t number, std::span<const std::byte> plain,
                         std::span<std::byte> sealed) {
  int n = 0;
  EVP_EncryptInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce_of(number).data());
  EVP_EncryptUpdate(context_.get(), nullptr, &n,
                    reinterpret_cast<const unsigned char*>(bound_.data()),
                    static_cast<int>(bound_.size()));
  EVP_EncryptUpdate(context_.get(), raw(sealed), &n, raw(plain), static_cast<int>(plain.size()));
  EVP_EncryptFinal_ex(context_.get(), &nowhere, &n);
  EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes,
                      sealed.data() + plain.size());
}

bool SegmentCipher::open(uint64_t number, std::span<const std::byte> sealed,
                         std::span<std::byte> plain) {
  int n = 0;
  std::array<unsigned char, kTagBytes> tag;
  std::memcpy(tag.data(), sealed.data() + plain.size(), tag.size());
  const bool good =
      EVP_DecryptInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce_of(number).data()) == 1 &&
      EVP_DecryptUpdate(context_.get(), nullptr, &n,
                        reinterpret_cast<const unsigned char*>(bound_.data()),
                        static_cast<int>(bound_.size())) == 1 &&
      EVP_DecryptUpdate(context_.get(), raw(plain), &n, raw(sealed),
                        static_cast<int>(plain.size())) == 1 &&
      EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1 &&
      EVP_DecryptFinal_ex(context_.get(), &nowhere, &n) == 1;
  if (!good) std::fill(plain.begin(), plain.end(), std::byte{0});
  return good;
}

}  // namespace kvcodec
