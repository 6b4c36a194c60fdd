// SPDX-License-Identifier: Apache-2.0
#include "restore/kernel_image.h"

namespace kvcodec::restore {

const void* kernel_image() { return nullptr; }

}  // namespace kvcodec::restore
