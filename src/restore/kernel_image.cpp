// SPDX-License-Identifier: Apache-2.0
#include "restore/kernel_image.h"

// NOLINTNEXTLINE(readability-identifier-naming): an assembler symbol
extern "C" const unsigned char kvcodec_restore_fatbin[];

namespace kvcodec::restore {

const void* kernel_image() { return kvcodec_restore_fatbin; }

}  // namespace kvcodec::restore
