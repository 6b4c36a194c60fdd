// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hevc/picture.h"

namespace kvcodec::hevc {

// Whether persistent_rice makes this picture smaller, judged by the mean |sample - 128|: a pass at
// memory speed, exact integers, so every machine answers alike.
bool persistent_rice_pays(const PictureView& picture);

}  // namespace kvcodec::hevc
