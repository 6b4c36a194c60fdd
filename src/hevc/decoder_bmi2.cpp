// SPDX-License-Identifier: Apache-2.0
#include <cpuid.h>

#include "hevc/block_decoder.h"
#include "hevc/decoder_variants.h"

namespace kvcodec::hevc {
namespace {

// The scalar code with BMI2's shifts and LZCNT; see encoder_bmi2.cpp.
__attribute__((target("bmi,bmi2,lzcnt,popcnt"), flatten)) void decode(JobSource& source) {
  decode_with_blocks(source);
}

constexpr DecoderOps kBmi2Decoder = {"bmi2", 1, decode};

// clang's __builtin_cpu_supports() does not know it.
bool has_lzcnt() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 5 & 1) != 0;
}

}  // namespace

const DecoderOps* bmi2_decoder() {
  const bool runs = __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("popcnt") && has_lzcnt();
  return runs ? &kBmi2Decoder : nullptr;
}

}  // namespace kvcodec::hevc
