// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvcodec::hevc {

// The context variables that our slices use (9.3.4.2), in an order of our own. Residuals are those
// of 32x32 luma blocks only.
enum Context : uint8_t {
  kCuTransquantBypass = 0,
  kCuSkip = 1,             // + skipped CUs among left and above
  kPredMode = 4,           // P
  kPartMode = 5,           // first bin
  kMerge = 6,              // P
  kPrevIntraLumaPred = 7,  // I
  kIntraChromaPred = 8,    // I
  kCbfLuma = 9,            // I, transform depth 0
  kCbfChroma = 10,         // transform depth 0
  kLastX = 11,             // + bin / 2
  kLastY = 16,             // + bin / 2
  kCodedSubBlock = 21,     // + 1 where the sub-block right or below is coded
  kSignificantDc = 23,     // the coefficient at (0, 0)
  kSignificant = 24,       // + 0..2, + 3 outside the first sub-block
  kGreater1 = 30,          // + 4 * context set + 0..3
  kGreater2 = 46,          // + context set
  kContextCount = 50,
};

enum class SliceType : uint8_t { p, i };

// Of the format: stored pictures depend on both. The smallest of nine QPs with either flag on real
// KV, by 10 bytes in 200,000: contexts soon forget how they began.
inline constexpr int kSliceQp = 0;
inline constexpr bool kCabacInitFlag = false;

// A context variable: pStateIdx << 1 | valMps.
using ContextStates = std::array<uint8_t, kContextCount>;
ContextStates initial_contexts(SliceType type);  // 9.3.2.2

// rangeTabLps (9.3.4.3.2) by pStateIdx and qRangeIdx.
inline constexpr uint8_t kRangeLps[64][4] = {
    {128, 176, 208, 240}, {128, 167, 197, 227}, {128, 158, 187, 216}, {123, 150, 178, 205},
    {116, 142, 169, 195}, {111, 135, 160, 185}, {105, 128, 152, 175}, {100, 122, 144, 166},
    {95, 116, 137, 158},  {90, 110, 130, 150},  {85, 104, 123, 142},  {81, 99, 117, 135},
    {77, 94, 111, 128},   {73, 89, 105, 122},   {69, 85, 100, 116},   {66, 80, 95, 110},
    {62, 76, 90, 104},    {59, 72, 86, 99},     {56, 69, 81, 94},     {53, 65, 77, 89},
    {51, 62, 73, 85},     {48, 59, 69, 80},     {46, 56, 66, 76},     {43, 53, 63, 72},
    {41, 50, 59, 69},     {39, 48, 56, 65},     {37, 45, 54, 62},     {35, 43, 51, 59},
    {33, 41, 48, 56},     {32, 39, 46, 53},     {30, 37, 43, 50},     {29, 35, 41, 48},
    {27, 33, 39, 45},     {26, 31, 37, 43},     {24, 30, 35, 41},     {23, 28, 33, 39},
    {22, 27, 32, 37},     {21, 26, 30, 35},     {20, 24, 29, 33},     {19, 23, 27, 31},
    {18, 22, 26, 30},     {17, 21, 25, 28},     {16, 20, 23, 27},     {15, 19, 22, 25},
    {14, 18, 21, 24},     {14, 17, 20, 23},     {13, 16, 19, 22},     {12, 15, 18, 21},
    {12, 14, 17, 20},     {11, 14, 16, 19},     {11, 13, 15, 18},     {10, 12, 15, 17},
    {10, 12, 14, 16},     {9, 11, 13, 15},      {9, 11, 12, 14},      {8, 10, 12, 14},
    {8, 9, 11, 13},       {7, 9, 11, 12},       {7, 9, 10, 12},       {7, 8, 10, 11},
    {6, 8, 9, 11},        {6, 7, 9, 10},        {6, 7, 8, 9},         {2, 2, 2, 2}};
// transIdxLps (9.3.4.3.2.2); transIdxMps is min(pStateIdx + 1, 62).
inline constexpr uint8_t kTransitionLps[64] = {
    0,  0,  1,  2,  2,  4,  4,  5,  6,  7,  8,  9,  9,  11, 11, 12, 13, 13, 15, 15, 16, 16,
    18, 18, 19, 19, 21, 21, 22, 22, 23, 24, 24, 25, 26, 26, 27, 27, 28, 29, 29, 30, 30, 30,
    31, 32, 32, 33, 33, 33, 34, 34, 35, 35, 35, 36, 36, 36, 37, 37, 37, 38, 38, 63};

// State after a bin.
constexpr uint8_t next_state(uint8_t state, bool bin) {
  const int index = state >> 1, mps = state & 1;
  if (bin == (mps != 0)) return static_cast<uint8_t>((index < 62 ? index + 1 : index) << 1 | mps);
  return static_cast<uint8_t>(kTransitionLps[index] << 1 | (index == 0 ? 1 - mps : mps));
}

// Up-right diagonal scan of an n x n block (6.5.3): entry i is y * n + x of position i.
template <int n>
constexpr std::array<uint8_t, n * n> diagonal_scan() {
  std::array<uint8_t, n * n> scan{};
  size_t at = 0;
  for (int diagonal = 0; diagonal < 2 * n - 1; ++diagonal) {
    for (int x = 0; x <= diagonal; ++x) {
      const int y = diagonal - x;
      if (x < n && y < n) scan[at++] = static_cast<uint8_t>(y * n + x);
    }
  }
  return scan;
}
inline constexpr auto kScan4 = diagonal_scan<4>();  // coefficients of a sub-block
inline constexpr auto kScan8 = diagonal_scan<8>();  // sub-blocks of a 32x32 block

// Block sizes of the format: coding tree block = coding block = transform block.
inline constexpr uint32_t kBlock = 32;
inline constexpr uint32_t kSubBlock = 4;
constexpr uint32_t blocks_of(uint32_t samples) { return (samples + kBlock - 1) / kBlock; }

// last_sig_coeff_x/y_prefix of a coordinate, and the least coordinate that has it (7.4.9.11).
inline constexpr std::array<uint8_t, 32> kLastPrefix = {
    0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8, 9, 9, 9, 9, 9, 9, 9, 9};
inline constexpr std::array<uint8_t, 10> kLastPrefixBase = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24};

// sigCtx of 9.3.4.2.5 without the sub-block and size terms, by neighbours (1: right coded, 2: below
// coded) and y * 4 + x.
constexpr std::array<std::array<uint8_t, 16>, 4> significance_patterns() {
  std::array<std::array<uint8_t, 16>, 4> patterns{};
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 4; ++x) {
      const int at = y * 4 + x;
      patterns[0][at] = static_cast<uint8_t>(x + y == 0 ? 2 : x + y < 3 ? 1 : 0);
      patterns[1][at] = static_cast<uint8_t>(y == 0 ? 2 : y == 1 ? 1 : 0);
      patterns[2][at] = static_cast<uint8_t>(x == 0 ? 2 : x == 1 ? 1 : 0);
      patterns[3][at] = 2;
    }
  }
  return patterns;
}
inline constexpr auto kSignificancePatterns = significance_patterns();

}  // namespace kvcodec::hevc
