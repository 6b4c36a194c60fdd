// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/store.h"
#include "store/aead_keys.h"

namespace kvcodec {

// What a sealed object begins with; docs/stores.md, "Encryption", has the layout.
struct SealHeader {
  static constexpr size_t kBytes = 64;
  static constexpr uint64_t kSegmentBytes = 65536;  // of plain text; the last one may be shorter
  static constexpr uint64_t kTagBytes = 16;

  AeadKey::Id key_id{};
  uint64_t bytes = 0;  // of plain text
  std::array<std::byte, 32> salt{};
  bool operator==(const SealHeader&) const = default;

  uint64_t segments() const;  // at least one, so that there is always a tag
  std::array<std::byte, kBytes> serialize() const;
  static Result<SealHeader> parse(std::string_view name, std::span<const std::byte> bytes);
  static uint64_t sealed_bytes(uint64_t plain);
  // None where no plain text seals to so many bytes.
  static std::optional<uint64_t> plain_bytes(uint64_t sealed);
};

// Encrypts what a store below keeps: AES-256-GCM (NIST SP 800-38D) in segments of 64 KiB under a
// key of the object's own, the name and the header bound into each. Changed, cut, reordered or
// swapped bytes are corrupt; a key that this store does not have is invalid_argument. Names, sizes
// and times stay visible, and an old version of an object can be put back by who may write below.
// Ranges cost the segments they touch, and the header where it is not remembered.
class SealedStore final : public Store {
 public:
  // The first of `keys` seals.
  SealedStore(std::unique_ptr<Store> below, std::vector<AeadKey> keys)
      : below_(std::move(below)), keys_(std::move(keys)) {}

  Result<size_t> get(std::string_view name, std::span<std::byte> out, uint64_t offset) override;
  Status put(std::string_view name, std::span<const std::byte> bytes) override;
  Result<ObjectStat> stat(std::string_view name) override;
  // Leaves out what is no sealed object by its size.
  Result<std::vector<ObjectStat>> list(std::string_view prefix) override;
  Status remove(std::string_view name) override;
  Status flush(std::chrono::milliseconds timeout) override { return below_->flush(timeout); }

 private:
  // Segments `first` to `last` as they came from below, or those of them that did.
  struct Window {
    SealHeader header;
    uint64_t first = 0;
    std::vector<std::byte> storage;
    std::span<const std::byte> sealed;
  };
  Result<Window> read_from_start(std::string_view name, size_t room);
  Result<Window> read_window(std::string_view name, const SealHeader& header, uint64_t offset,
                             size_t room);
  Result<SealHeader> read_header(std::string_view name);
  Result<size_t> open_window(std::string_view name, const Window& window, std::span<std::byte> out,
                             uint64_t offset) const;
  Result<const AeadKey*> key_of(std::string_view name, const SealHeader& header) const;
  std::optional<SealHeader> remembered(std::string_view name);
  void remember(std::string_view name, const SealHeader* header);

  const std::unique_ptr<Store> below_;
  const std::vector<AeadKey> keys_;
  std::mutex mutex_;  // guards headers_
  std::map<std::string, SealHeader, std::less<>> headers_;
};

}  // namespace kvcodec
