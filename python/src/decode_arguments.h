// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "bindings.h"
#include "kvcodec/codec.h"
#include "kvcodec/profile.h"

namespace kvcodec::python {

// DecodeOptions that own what they point to; shared by decode_chunk, verify_chunk and the restorer.
struct DecodeArguments {
  std::optional<ChunkId> expected;
  std::optional<Tier> expected_tier, lowest_tier;
  std::shared_ptr<const Profile> profile;
  std::optional<uint32_t> position;
  Limits limits;
  int threads = 0;

  // Points into this.
  DecodeOptions options() const {
    DecodeOptions options;
    options.expected = expected ? &*expected : nullptr;
    options.expected_tier = expected_tier ? &*expected_tier : nullptr;
    options.lowest_tier = lowest_tier ? &*lowest_tier : nullptr;
    options.profile = profile.get();
    options.position = position;
    options.limits = limits;
    options.threads = threads;
    return options;
  }
};

}  // namespace kvcodec::python
