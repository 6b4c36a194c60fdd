// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "kvcodec/codec.h"
#include "kvcodec/device.h"
#include "kvcodec/kv.h"
#include "kvcodec/result.h"

namespace kvcodec {

// An object that was fetched, and where it belongs.
struct FetchedChunk {
  std::span<const std::byte> object;
  ChunkId id;
  uint32_t first_token = 0;  // of the target
  Tier tier = Tier::exact;   // of its rendition
};

// The end of a fetch: decodes objects into a cache. Not thread-safe, but different restorers may
// work at once. A fetch calls it from its own thread alone.
class ChunkRestorer {
 public:
  struct Outcome {
    size_t chunks = 0;            // restored: all before the first that is at fault
    Status status = ok_status();  // of that one
  };
  virtual ~ChunkRestorer() = default;
  virtual const KvGeometry& geometry() const = 0;
  // Restores chunks that follow each other; each must be of its tier, or finer where that is
  // calibrated. go_on() is called after each; where it says no, no further one is restored.
  virtual Outcome restore(std::span<const FetchedChunk> chunks, const DecodeOptions& options,
                          const std::function<bool()>& go_on) = 0;
};

// Into host memory. A chunk that is at fault, and those after it, leave the target untouched.
// invalid_argument where the geometry does not fit the memory.
Result<std::unique_ptr<ChunkRestorer>> host_restorer(const KvTarget& target);
// Into the memory of a GPU; borrows both. The tokens of chunks that are not counted as restored
// may have been written to. invalid_argument as above.
Result<std::unique_ptr<ChunkRestorer>> device_restorer(DeviceRestorer& restorer,
                                                       const DeviceTarget& target);

}  // namespace kvcodec
