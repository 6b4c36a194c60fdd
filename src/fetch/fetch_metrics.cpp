// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "fetch/rendition_planner.h"

namespace kvcodec {

void count_fetch(const AdaptiveReport& report, Metrics& metrics) {
  const auto count = [&](const char* name, const char* help, double value,
                         const Labels& labels = {}) {
    metrics.describe(name, help);
    metrics.add(name, value, labels);
  };
  const auto gone = static_cast<double>(report.chunks_known - report.chunks);
  std::map<std::string, size_t> renditions;
  for (const std::string& rendition : report.renditions) ++renditions[rendition];
  for (const auto& [rendition, chunks] : renditions)
    count("kvcodec_fetch_chunks_total", "Chunks restored, by rendition.",
          static_cast<double>(chunks), {{"rendition", rendition}});
  count("kvcodec_fetches_total", "Fetches, by why they ended.", 1,
        {{"end", report.recompute_is_sooner ? "recompute"
                 : report.stopped_by        ? error_code_name(report.stopped_by->code)
                                            : "complete"}});
  count("kvcodec_fetch_chunks_given_up_total", "Chunks in manifests that were not restored.", gone);
  count("kvcodec_fetch_tokens_restored_total", "Tokens restored.", report.tokens_restored);
  count("kvcodec_fetch_bytes_total", "Bytes of objects restored.",
        static_cast<double>(report.object_bytes));
  count("kvcodec_fetch_wasted_bytes_total", "Bytes of transfers that were given up.",
        static_cast<double>(report.wasted_bytes));
  count("kvcodec_fetch_hedges_total", "Gets that stalled and were asked again.",
        static_cast<double>(report.hedges));
  count("kvcodec_fetch_retries_total", "Chunks tried again after a fault.",
        static_cast<double>(report.retries));
  count("kvcodec_fetch_switches_total", "Chunks whose rendition changed under way.",
        static_cast<double>(report.switches));
  const bool corrupt = report.stopped_by && report.stopped_by->code == ErrorCode::corrupt;
  count("kvcodec_fetch_corrupt_total", "Fetches that ended at a corrupt chunk.", corrupt ? 1 : 0);
  metrics.describe("kvcodec_link_bytes_per_second", "The link, as last measured.");
  if (report.bytes_per_second > 0)
    metrics.set("kvcodec_link_bytes_per_second", report.bytes_per_second);
  metrics.describe("kvcodec_fetch_seconds", "Time of a fetch and of its stages.");
  metrics.observe("kvcodec_fetch_seconds", report.seconds, {{"stage", "all"}});
  metrics.observe("kvcodec_fetch_seconds", report.transfer_seconds, {{"stage", "transfer"}});
  metrics.observe("kvcodec_fetch_seconds", report.decode_seconds, {{"stage", "decode"}});
}

}  // namespace kvcodec
