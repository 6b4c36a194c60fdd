// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "hevc/warp_encoder.h"

namespace kvcodec::hevc {

WarpTables make_warp_tables() {
  WarpTables tables = {};
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t state = i >> 1, bin = i & 1;
    for (uint32_t q = 0; q < 4; ++q) tables.steps[i] |= uint64_t{kRangeLps[state >> 1][q]} << 8 * q;
    const uint64_t next = next_state(static_cast<uint8_t>(state), bin != 0);
    tables.steps[i] |= next << 33 | uint64_t{(state & 1) != bin} << 40;
  }
  const ContextStates initial = initial_contexts(SliceType::p);
  for (size_t c = 0; c < initial.size(); ++c)
    tables.initial[c] = static_cast<uint8_t>(initial[c] << 1);
  tables.initial[kWarpTerminate] = 63 << 2;
  for (uint8_t i = 0; i < kSubBlocks; ++i) {
    tables.scan8[i] = kScan8[i];
    tables.index8[kScan8[i]] = i;
  }
  for (size_t i = 0; i < 16; ++i) {
    tables.scan4[i] = kScan4[i];
    for (size_t neighbours = 0; neighbours < 4; ++neighbours)
      tables.pattern[neighbours][i] = kSignificancePatterns[neighbours][kScan4[i]];
  }
  std::copy(kLastPrefix.begin(), kLastPrefix.end(), tables.last_prefix);
  std::copy(kLastPrefixBase.begin(), kLastPrefixBase.end(), tables.last_base);
  return tables;
}

}  // namespace kvcodec::hevc
