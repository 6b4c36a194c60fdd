// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "fetch/transfer_window.h"
#include "kvcodec/fetch.h"
#include "kvcodec/restorer.h"

namespace kvcodec {

// What a fetch is told, whichever way it chooses renditions.
struct RestoreRequest {
  Digest ns;
  std::span<const Digest> keys;           // of the chunks that are fetched
  std::span<const Rendition> renditions;  // what Wanted::rendition counts
  std::span<const std::string> rendition_names;
  size_t total_chunks = 0;  // for progress
  uint32_t chunk_tokens = 0;
  DecodeOptions decode;
  size_t max_together = 1;      // chunks that are decoded in one call
  double deadline_seconds = 0;  // 0: none
  Progress progress;
  std::stop_token stop;
  const Observers* observers = nullptr;
  // Called after each decoding call: chunks' renditions, and how long it took.
  std::function<void(std::span<const size_t> renditions, double seconds)> measured;
};

// Takes chunks from the window in order and restores them, in the calling thread, until the last,
// a fault, the deadline or a stop. Fills all of the report but bytes and times of transfers.
void restore_in_order(TransferWindow& window, ChunkRestorer& restorer,
                      const RestoreRequest& request, FetchReport& report);

// The reference: each chunk is got whole, then restored, then the next. `chosen`: the rendition of
// each chunk, an index. What it restores is what the pipeline restores, byte for byte.
FetchReport restore_one_by_one(Store& store, ChunkRestorer& restorer, const RestoreRequest& request,
                               std::span<const size_t> chosen, uint64_t max_object_bytes);

}  // namespace kvcodec
