// SPDX-License-Identifier: Apache-2.0
#include "restore/kernel_image.h"

extern "C" const unsigned char kvcodec_restore_fatbin[];

namespace kvcodec::restore {

const void* kernel_image() { return kvcodec_restore_fatbin; }

}  // namespace kvcodec::restore
