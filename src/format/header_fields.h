// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "format/header.h"

// Where the fields of a header are; shared by its writer and its reader. See docs/format.md.
namespace kvcodec::format {

// A byte above 127 finds 7-bit channels, the line ends and 0x1A find text-mode transfers.
inline constexpr std::array<uint8_t, 8> kMagic = {0x89, 0x4B, 0x56, 0x43, 0x0D, 0x0A, 0x1A, 0x0A};

inline constexpr size_t kVersionAt = 8, kTierAt = 10, kHeaderBytesAt = 12, kObjectBytesAt = 16;
inline constexpr size_t kNamespaceAt = 24, kKeyAt = 56, kProfileAt = 88;
inline constexpr size_t kFirstTokenAt = 120, kTokensAt = 124;
inline constexpr size_t kLayersAt = 128, kKvHeadsAt = 132, kKeyDimAt = 136, kValueDimAt = 140;
inline constexpr size_t kDtypeAt = 144, kRopeStyleAt = 146, kBasisAt = 147, kRotaryDimsAt = 148;
inline constexpr size_t kSinkTokensAt = 152, kMaxPictureHeightAt = 156;
inline constexpr size_t kPictureCountAt = 160, kEscapeCountAt = 164, kSymbolBitsAt = 168;
inline constexpr size_t kZeroBAt = 170, kGroupCountAt = 172;
inline constexpr size_t kFixedBytes = 176;

inline constexpr size_t kPictureBytes = 52, kChecksumBytes = 8;
inline constexpr size_t kGroupBytes = 40;
// Of version 1 with one picture; version 2 has a group at least, and pictures where a code is not
// 0.
inline constexpr size_t kLeastHeaderBytes = kFixedBytes + kPictureBytes + kChecksumBytes;
inline constexpr size_t kLeastCalibratedBytes = kFixedBytes + kGroupBytes + kChecksumBytes;

// Limits of the format itself; together they keep every product of sizes below 2^64.
inline constexpr uint32_t kMaxLayers = 1u << 16, kMaxHeads = 1u << 16, kMaxHeadDim = 1u << 16;
inline constexpr uint64_t kMaxRows = uint64_t{1} << 24;  // of a kind, over all layers
inline constexpr uint32_t kMinPictureHeight = 144, kMaxPictureHeight = 8192;

// Pictures that the layout gives, without making them.
uint64_t count_pictures(const Header& header);

// Bytes of the whole header, from its fixed fields alone.
uint64_t derive_header_bytes(const Header& header, uint64_t groups, uint64_t escapes,
                             uint64_t pictures);

}  // namespace kvcodec::format
