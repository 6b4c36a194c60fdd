// SPDX-License-Identifier: Apache-2.0
#include "store/sealed_store.h"

#include <openssl/rand.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "store/segment_cipher.h"
#include "store/store_name.h"

namespace kvcodec {
namespace {

constexpr char kMagic[] = "KVCSEAL1";
constexpr size_t kMagicBytes = 8;
constexpr size_t kMaxRemembered = 4096;
constexpr int kMaxRaces = 10;
constexpr uint64_t kStride = SealHeader::kSegmentBytes + SealHeader::kTagBytes;

// What each tag covers beside its segment.
std::string bound_to(std::string_view name, const SealHeader& header) {
  const auto bytes = header.serialize();
  std::string bound(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  bound += name;
  return bound;
}

Error truncated(std::string_view name, uint64_t at, uint64_t expected, uint64_t found) {
  return make_error(ErrorCode::corrupt,
                    "sealed object '{}': {} bytes from {}; expected {}: it was cut off", name,
                    found, at, expected);
}

}  // namespace

uint64_t SealHeader::segments() const {
  return std::max<uint64_t>(1, (bytes + kSegmentBytes - 1) / kSegmentBytes);
}

std::array<std::byte, SealHeader::kBytes> SealHeader::serialize() const {
  ByteWriter writer;
  writer.put_bytes(std::as_bytes(std::span(kMagic, kMagicBytes)));
  writer.put_bytes(key_id);
  writer.put(bytes);
  writer.put(static_cast<uint32_t>(kSegmentBytes));
  writer.put(uint32_t{0});
  writer.put_bytes(salt);
  std::array<std::byte, kBytes> serialized;
  std::copy(writer.bytes().begin(), writer.bytes().end(), serialized.begin());
  return serialized;
}

Result<SealHeader> SealHeader::parse(std::string_view name, std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  SealHeader header;
  const auto magic = reader.get_bytes(kMagicBytes);
  const auto key_id = reader.get_bytes(header.key_id.size());
  header.bytes = reader.get<uint64_t>();
  const auto segment_bytes = reader.get<uint32_t>(), reserved = reader.get<uint32_t>();
  const auto salt = reader.get_bytes(header.salt.size());
  if (!reader.ok() || std::memcmp(magic.data(), kMagic, kMagicBytes) != 0) {
    return make_error(ErrorCode::corrupt,
                      "object '{}' is not sealed: expected it to begin with {}; it was stored "
                      "without a key, or is damaged",
                      name, kMagic);
  }
  if (segment_bytes != kSegmentBytes || reserved != 0 || header.bytes > INT64_MAX / 2) {
    return make_error(ErrorCode::corrupt,
                      "sealed object '{}': {} bytes in segments of {}, reserved {}; expected "
                      "segments of {}, reserved 0",
                      name, header.bytes, segment_bytes, reserved, kSegmentBytes);
  }
  std::copy(key_id.begin(), key_id.end(), header.key_id.begin());
  std::copy(salt.begin(), salt.end(), header.salt.begin());
  return header;
}

uint64_t SealHeader::sealed_bytes(uint64_t plain) {
  SealHeader header;
  header.bytes = plain;
  return kBytes + plain + header.segments() * kTagBytes;
}

std::optional<uint64_t> SealHeader::plain_bytes(uint64_t sealed) {
  if (sealed < kBytes + kTagBytes) return std::nullopt;
  const uint64_t body = sealed - kBytes;
  const uint64_t plain = body - (body + kStride - 1) / kStride * kTagBytes;
  if (plain > body || sealed_bytes(plain) != sealed) return std::nullopt;
  return plain;
}

Result<const AeadKey*> SealedStore::key_of(std::string_view name, const SealHeader& header) const {
  for (const AeadKey& key : keys_) {
    if (key.id() == header.key_id) return &key;
  }
  std::string known;
  for (const AeadKey& key : keys_)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", to_hex(key.id()));
  return make_error(ErrorCode::invalid_argument,
                    "object '{}' was sealed with the key of id {}; the keys given have {}", name,
                    to_hex(header.key_id), known);
}

std::optional<SealHeader> SealedStore::remembered(std::string_view name) {
  const std::lock_guard guard(mutex_);
  const auto at = headers_.find(name);
  if (at == headers_.end()) return std::nullopt;
  return at->second;
}

void SealedStore::remember(std::string_view name, const SealHeader* header) {
  const std::lock_guard guard(mutex_);
  if (header == nullptr) {
    if (const auto at = headers_.find(name); at != headers_.end()) headers_.erase(at);
    return;
  }
  if (headers_.size() >= kMaxRemembered) headers_.clear();
  headers_.insert_or_assign(std::string(name), *header);
}

Result<SealHeader> SealedStore::read_header(std::string_view name) {
  std::array<std::byte, SealHeader::kBytes> bytes;
  KVCODEC_TRY(const size_t n, below_->get(name, bytes, 0));
  return SealHeader::parse(name, std::span(bytes).first(n));
}

// The header and the first segments in one get, so of one version.
Result<SealedStore::Window> SealedStore::read_from_start(std::string_view name, size_t room) {
  Window window;
  // A whole last segment, as its tag covers all of it.
  const uint64_t segments = std::max<uint64_t>(
      1, (uint64_t{room} + SealHeader::kSegmentBytes - 1) / SealHeader::kSegmentBytes);
  window.storage.resize(SealHeader::kBytes + segments * kStride);
  KVCODEC_TRY(const size_t n, below_->get(name, window.storage, 0));
  const auto found = std::span<const std::byte>(window.storage).first(n);
  KVCODEC_TRY(window.header, SealHeader::parse(name, found.first(std::min(n, SealHeader::kBytes))));
  window.sealed = found.subspan(SealHeader::kBytes);
  remember(name, &window.header);
  return window;
}

Result<SealedStore::Window> SealedStore::read_window(std::string_view name,
                                                     const SealHeader& header, uint64_t offset,
                                                     size_t room) {
  Window window;
  window.header = header;
  // Where nothing is asked for that is there, the last segment shows that the size is true.
  const uint64_t last_segment = header.segments() - 1;
  const uint64_t end =
      offset >= header.bytes ? 0 : offset + std::min<uint64_t>(room, header.bytes - offset);
  window.first = end == 0 ? last_segment : offset / SealHeader::kSegmentBytes;
  const uint64_t last = end == 0 ? last_segment : (end - 1) / SealHeader::kSegmentBytes;
  window.storage.resize((last - window.first + 1) * kStride);
  KVCODEC_TRY(const size_t n,
              below_->get(name, window.storage, SealHeader::kBytes + window.first * kStride));
  window.sealed = std::span<const std::byte>(window.storage).first(n);
  return window;
}

Result<size_t> SealedStore::open_window(std::string_view name, const Window& window,
                                        std::span<std::byte> out, uint64_t offset) const {
  const SealHeader& header = window.header;
  KVCODEC_TRY(const AeadKey* const key, key_of(name, header));
  const size_t want =
      offset >= header.bytes
          ? 0
          : static_cast<size_t>(std::min<uint64_t>(out.size(), header.bytes - offset));
  SegmentCipher cipher(*key, header.salt, bound_to(name, header), false);
  std::vector<std::byte> whole(SealHeader::kSegmentBytes);
  auto sealed = window.sealed;
  size_t done = 0;
  for (uint64_t number = window.first; done < want || number == window.first; ++number) {
    const uint64_t begin = number * SealHeader::kSegmentBytes;
    const uint64_t length = std::min(SealHeader::kSegmentBytes, header.bytes - begin);
    if (sealed.size() < length + SealHeader::kTagBytes) {
      return truncated(name, SealHeader::kBytes + number * kStride, length + SealHeader::kTagBytes,
                       sealed.size());
    }
    // Straight to its place where all of the segment is wanted.
    const uint64_t skip = offset + done > begin ? std::min(offset + done - begin, length) : 0;
    const size_t n = static_cast<size_t>(std::min<uint64_t>(want - done, length - skip));
    const bool straight = n == length;
    const auto plain = straight ? out.subspan(done, n) : std::span(whole).first(length);
    if (!cipher.open(number, sealed.first(length + SealHeader::kTagBytes), plain)) {
      return make_error(ErrorCode::corrupt,
                        "sealed object '{}': segment {} of {} does not match its tag", name, number,
                        header.segments());
    }
    if (!straight && n > 0) std::memcpy(out.data() + done, plain.data() + skip, n);
    done += n;
    sealed = sealed.subspan(length + SealHeader::kTagBytes);
  }
  return done;
}

Result<size_t> SealedStore::get(std::string_view name, std::span<std::byte> out, uint64_t offset) {
  KVCODEC_CHECK(validate_name(name));
  if (out.empty()) return below_->get(name, out, 0);
  if (offset == 0) {
    KVCODEC_TRY(const Window window, read_from_start(name, out.size()));
    return open_window(name, window, out, offset);
  }
  // Header and segments come by two gets here, which may see two versions.
  std::optional<SealHeader> header = remembered(name);
  for (int race = 0;; ++race) {
    if (!header) {
      KVCODEC_TRY(header, read_header(name));
    }
    KVCODEC_TRY(const Window window, read_window(name, *header, offset, out.size()));
    Result<size_t> opened = open_window(name, window, out, offset);
    if (opened.ok()) {
      remember(name, &*header);
      return opened;
    }
    KVCODEC_TRY(const SealHeader now, read_header(name));
    if (now == *header || race == kMaxRaces) {
      remember(name, nullptr);
      return opened;
    }
    header = now;
  }
}

Status SealedStore::put(std::string_view name, std::span<const std::byte> bytes) {
  KVCODEC_CHECK(validate_name(name));
  SealHeader header;
  header.key_id = keys_.front().id();
  header.bytes = bytes.size();
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(header.salt.data()),
                   static_cast<int>(header.salt.size())) != 1) {
    return make_error(ErrorCode::internal, "no random numbers from OpenSSL");
  }
  std::vector<std::byte> sealed(SealHeader::sealed_bytes(bytes.size()));
  const auto serialized = header.serialize();
  std::copy(serialized.begin(), serialized.end(), sealed.begin());
  SegmentCipher cipher(keys_.front(), header.salt, bound_to(name, header), true);
  for (uint64_t number = 0; number < header.segments(); ++number) {
    const uint64_t begin = number * SealHeader::kSegmentBytes;
    const uint64_t length = std::min(SealHeader::kSegmentBytes, header.bytes - begin);
    cipher.seal(number, bytes.subspan(begin, length),
                std::span(sealed).subspan(SealHeader::kBytes + number * kStride,
                                          length + SealHeader::kTagBytes));
  }
  remember(name, nullptr);
  return below_->put(name, sealed);
}

Result<ObjectStat> SealedStore::stat(std::string_view name) {
  KVCODEC_TRY(ObjectStat found, below_->stat(name));
  const auto plain = SealHeader::plain_bytes(found.bytes);
  if (!plain) {
    return make_error(ErrorCode::corrupt, "object '{}' is not sealed: no plain text gives {} bytes",
                      name, found.bytes);
  }
  found.bytes = *plain;
  return found;
}

Result<std::vector<ObjectStat>> SealedStore::list(std::string_view prefix) {
  KVCODEC_TRY(std::vector<ObjectStat> listed, below_->list(prefix));
  std::erase_if(listed, [](ObjectStat& object) {
    const auto plain = SealHeader::plain_bytes(object.bytes);
    object.bytes = plain.value_or(0);
    return !plain;
  });
  return listed;
}

Status SealedStore::remove(std::string_view name) {
  remember(name, nullptr);
  return below_->remove(name);
}

}  // namespace kvcodec
