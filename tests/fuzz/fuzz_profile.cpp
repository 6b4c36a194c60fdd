// SPDX-License-Identifier: Apache-2.0
#include "fuzz/require.h"
#include "kvcodec/profile.h"

// The bytes are a profile. A failure must be corrupt or unsupported; what is accepted must fit
// together.
using namespace kvcodec;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto profile = Profile::parse(std::as_bytes(std::span(data, size)));
  if (!profile.ok()) {
    KVCODEC_REQUIRE(profile.error().code == ErrorCode::corrupt ||
                    profile.error().code == ErrorCode::unsupported);
    return 0;
  }
  uint32_t layers[2] = {0, 0};
  for (const ProfileGroup& group : profile->groups()) {
    layers[static_cast<size_t>(group.kind)] += group.layers;
    const size_t channels = size_t{group.layers} * profile->shape().channels(group.kind);
    KVCODEC_REQUIRE(group.mean.size() == channels && group.variance.size() == group.components &&
                    group.basis.size() == group.components * channels);
  }
  if (!profile->is_identity()) KVCODEC_REQUIRE(layers[0] == profile->shape().layers);
  return 0;
}
