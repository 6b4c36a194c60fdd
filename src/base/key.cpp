// SPDX-License-Identifier: Apache-2.0
#include "kvcodec/key.h"

#include <openssl/evp.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/bytes.h"
#include "base/error.h"

namespace kvcodec {

namespace {

// The version in docs/format.md that namespaces are bound to.
constexpr uint16_t kNamespaceFormatVersion = 1;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }
  void update(std::span<const std::byte> bytes) {
    EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
  }
  Digest finish() {
    Digest digest;
    EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.bytes.data()),
                       nullptr);
    return digest;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

void put_field(ByteWriter& to, std::span<const std::byte> field) {
  to.put(static_cast<uint32_t>(field.size()));
  to.put_bytes(field);
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

std::string to_hex(const Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(64);
  for (std::byte b : digest.bytes) {
    hex += kDigits[std::to_integer<int>(b >> 4)];
    hex += kDigits[std::to_integer<int>(b & std::byte{15})];
  }
  return hex;
}

Result<Digest> digest_from_hex(std::string_view hex) {
  Digest digest;
  const auto nibble = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  bool good = hex.size() == 2 * digest.bytes.size();
  for (size_t i = 0; good && i < digest.bytes.size(); ++i) {
    const int high = nibble(hex[2 * i]), low = nibble(hex[2 * i + 1]);
    good = high >= 0 && low >= 0;
    digest.bytes[i] = static_cast<std::byte>(high * 16 + low);
  }
  if (!good) {
    return make_error(ErrorCode::invalid_argument,
                      "digest: expected 64 lower-case hexadecimal digits, found '{}'", hex);
  }
  return digest;
}

Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Result<Digest> sha256_file(const std::string& path) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (!file) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::not_found : ErrorCode::io;
    return make_error(code, "{}: {}", path, std::strerror(errno));
  }
  Sha256 hash;
  std::vector<std::byte> buffer(1 << 20);
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), file.get())) > 0;) {
    hash.update(std::span(buffer).first(n));
  }
  if (std::ferror(file.get())) return make_error(ErrorCode::io, "{}: read failed", path);
  return hash.finish();
}

Digest namespace_digest(const NamespaceFields& fields) {
  ByteWriter to;
  to.put_bytes(bytes_of("kvcodec-namespace"));
  to.put(kNamespaceFormatVersion);
  put_field(to, bytes_of(fields.model));
  put_field(to, fields.weights.bytes);

  ByteWriter shape;
  shape.put(fields.shape.layers);
  shape.put(fields.shape.kv_heads);
  shape.put(fields.shape.key_dim);
  shape.put(fields.shape.value_dim);
  shape.put(static_cast<uint16_t>(fields.shape.dtype));
  put_field(to, shape.bytes());

  ByteWriter rope;
  rope.put(static_cast<uint8_t>(fields.rope.style));
  rope.put(fields.rope.rotary_dims);
  for (uint64_t step : fields.rope.phase_steps) rope.put(step);
  put_field(to, rope.bytes());

  ByteWriter rank;
  rank.put(fields.rank);
  rank.put(fields.ranks);
  put_field(to, rank.bytes());
  put_field(to, bytes_of(fields.salt));
  put_field(to, fields.profile.bytes);
  return sha256(to.bytes());
}

Digest chunk_key(const Digest& parent, std::span<const int32_t> tokens) {
  Sha256 hash;
  hash.update(parent.bytes);
  hash.update(std::as_bytes(tokens));
  return hash.finish();
}

std::vector<Digest> chunk_keys(const Digest& ns, std::span<const int32_t> tokens,
                               uint32_t chunk_tokens) {
  std::vector<Digest> keys;
  Digest parent = ns;
  for (size_t at = 0; at + chunk_tokens <= tokens.size(); at += chunk_tokens) {
    keys.push_back(parent = chunk_key(parent, tokens.subspan(at, chunk_tokens)));
  }
  return keys;
}

std::string object_name(const Digest& ns, const Digest& key, std::string_view rendition) {
  return fmt::format("{}/{}/{}", to_hex(ns), to_hex(key), rendition);
}

}  // namespace kvcodec
