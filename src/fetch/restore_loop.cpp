// SPDX-License-Identifier: Apache-2.0
#include "fetch/restore_loop.h"

#include <algorithm>

#include "base/error.h"

namespace kvcodec {
namespace {

// Above this, one chunk has pictures enough to keep the decoder busy.
constexpr uint64_t kMaxBytesTogether = uint64_t{16} << 20;

FetchedChunk fetched(const RestoreRequest& request, size_t chunk, size_t rendition,
                     std::span<const std::byte> object) {
  const auto first_token = static_cast<uint32_t>(chunk * request.chunk_tokens);
  return {object,
          {request.ns, request.keys[chunk], first_token},
          first_token,
          request.renditions[rendition].tier};
}

Error named(const RestoreRequest& request, size_t chunk, size_t rendition, const Error& error) {
  return make_error(
      error.code, "{}: {}",
      object_name(request.ns, request.keys[chunk], request.rendition_names[rendition]),
      error.message);
}

// Restores chunks that have come. Returns the fault of the first that was not restored.
std::optional<Error> restore_batch(std::span<const TransferWindow::Arrived> batch,
                                   ChunkRestorer& restorer, const RestoreRequest& request,
                                   double seconds_left, FetchReport& report) {
  std::vector<FetchedChunk> chunks;
  std::vector<size_t> renditions;
  for (const auto& arrived : batch)
    chunks.push_back(fetched(request, arrived.chunk, arrived.rendition, *arrived.object));
  Stopwatch watch;
  Trace* trace = request.observers != nullptr ? request.observers->trace : nullptr;
  double began = trace != nullptr ? trace->now() : 0;
  const auto count_chunk = [&] {
    const auto& arrived = batch[renditions.size()];
    renditions.push_back(arrived.rendition);
    ++report.chunks;
    report.tokens_restored += request.chunk_tokens;
    report.object_bytes += arrived.object->size();
    report.renditions.push_back(request.rendition_names[arrived.rendition]);
    if (trace != nullptr) {
      // Pictures of a batch are decoded together, so the first chunk's span has all of that.
      const double now = trace->now();
      trace->span(
          "decode and restore", "chunk " + std::to_string(arrived.chunk), began, now,
          {{"rendition", report.renditions.back()}, {"together", std::to_string(batch.size())}});
      began = now;
    }
    if (request.progress) request.progress(report.chunks, request.total_chunks);
    return !request.stop.stop_requested() && watch.seconds() < seconds_left;
  };
  auto outcome = restorer.restore(chunks, request.decode, count_chunk);
  const double seconds = watch.seconds();
  report.decode_seconds += seconds;
  if (request.measured && renditions.size() == batch.size()) request.measured(renditions, seconds);
  if (outcome.status.ok()) return std::nullopt;
  const auto& bad = batch[outcome.chunks];
  return named(request, bad.chunk, bad.rendition, outcome.status.error());
}

}  // namespace

void restore_in_order(TransferWindow& window, ChunkRestorer& restorer,
                      const RestoreRequest& request, FetchReport& report) {
  const double deadline =
      request.deadline_seconds > 0 ? request.deadline_seconds : double{UINT32_MAX};
  const std::stop_callback wake(request.stop, [&] { window.wake(); });
  // The more chunks that have arrived are decoded together the better, as long as they are small.
  const auto more = [&](const std::vector<TransferWindow::Arrived>& taken) {
    uint64_t bytes = 0;
    for (const auto& arrived : taken) bytes += arrived.object->size();
    return taken.size() < request.max_together && bytes < kMaxBytesTogether;
  };
  while (report.chunks < request.keys.size()) {
    if (request.stop.stop_requested()) {
      report.stopped_by = make_error(ErrorCode::cancelled, "fetch: cancelled after {} of {} chunks",
                                     report.chunks, request.keys.size());
      return;
    }
    const double left = deadline - window.now();
    if (left <= 0) {
      report.stopped_by =
          make_error(ErrorCode::unavailable, "fetch: the deadline came after {} of {} chunks",
                     report.chunks, request.keys.size());
      return;
    }
    const auto batch = window.take(std::min(left, 0.1), more);
    if (batch.empty()) {
      report.stopped_by = window.error();
      if (report.stopped_by) return;
      continue;
    }
    const size_t before = report.chunks;
    const auto fault = restore_batch(batch, restorer, request, left, report);
    window.done(report.chunks - before);
    if (fault && !window.try_another(*fault)) {
      report.stopped_by = fault;
      return;
    }
  }
}

FetchReport restore_one_by_one(Store& store, ChunkRestorer& restorer, const RestoreRequest& request,
                               std::span<const size_t> chosen, uint64_t max_object_bytes) {
  FetchReport report;
  Stopwatch all;
  for (size_t chunk = 0; chunk < chosen.size() && !report.stopped_by; ++chunk) {
    Stopwatch getting;
    auto object = get_object(
        store, object_name(request.ns, request.keys[chunk], request.rendition_names[chosen[chunk]]),
        max_object_bytes);
    report.transfer_seconds += getting.seconds();
    if (!object.ok()) {
      report.stopped_by = std::move(object.error());
      break;
    }
    const TransferWindow::Arrived arrived{
        chunk, chosen[chunk], std::make_shared<const std::vector<std::byte>>(*std::move(object))};
    report.stopped_by =
        restore_batch(std::span(&arrived, 1), restorer, request, double{UINT32_MAX}, report);
  }
  report.seconds = all.seconds();
  return report;
}

}  // namespace kvcodec
