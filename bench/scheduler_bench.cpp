// SPDX-License-Identifier: Apache-2.0
// Time to first token of requests that fetch nothing, beside neighbours that do: with the queue for
// those that wait for KV, and in one queue, first come, first served. Simulated time.
#include <fmt/format.h>

#include "unit/fetch/scheduler_sim.h"

int main(int argc, char** argv) {
  using namespace kvcodec::scheduler_sim;
  const size_t requests = argc > 1 ? static_cast<size_t>(std::atol(argv[1])) : 200000;
  SimSettings settings;
  settings.scheduler.memory_bytes = 1 << 20;
  settings.scheduler.waiting_memory_bytes = 1 << 19;
  settings.chunk_bytes = 1 << 20;
  settings.decode_seconds = 0.01;
  std::string rows;
  for (const double link : {1e8, 2e8, 1e9}) {
    settings.link_bytes_per_second = link;
    const auto load = make_load(requests, 0.05, 8, 32, 1);
    // Without neighbours the same requests come at the same times.
    auto alone = load;
    std::erase_if(alone, [](const SimRequest& r) { return r.chunks > 0; });
    const double none = p99(alone, simulate(alone, Mode::queue, settings));
    const double there = p99(load, simulate(load, Mode::instant, settings));
    const double queue = p99(load, simulate(load, Mode::queue, settings));
    const double fcfs = p99(load, simulate(load, Mode::fcfs, settings));
    rows += fmt::format(
        "{}{{\"link_gbps\":{},\"alone_ms\":{:.3f},\"there_ms\":{:.3f},\"queue_ms\":{:.3f},"
        "\"fcfs_ms\":{:.3f}}}",
        rows.empty() ? "" : ",", link * 8 / 1e9, none * 1e3, there * 1e3, queue * 1e3, fcfs * 1e3);
  }
  fmt::print("{{\"requests\":{},\"rows\":[{}]}}\n", requests, rows);
  return 0;
}
