// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvcodec {

// SplitMix64's finaliser (Steele, Lea, Flood, 2014): numbers that look random and are the same
// everywhere, each of its place alone.
inline uint64_t mix(uint64_t seed, uint64_t place) {
  uint64_t z = seed * 0xd1342543de82ef95u + (place + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// 0 to below 1.
inline double unit_fraction(uint64_t random) { return static_cast<double>(random >> 11) * 0x1p-53; }

}  // namespace kvcodec
