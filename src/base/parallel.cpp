// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace kvcodec {

int resolve_threads(int threads) {
  if (threads > 0) return threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void parallel_for(size_t n, int threads, const std::function<void(size_t, int)>& body) {
  const size_t workers = std::min(n, static_cast<size_t>(resolve_threads(threads)));
  std::atomic<size_t> next{0};
  std::exception_ptr thrown;
  std::once_flag once;
  auto run = [&](int worker) {
    try {
      for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) body(i, worker);
    } catch (...) {
      std::call_once(once, [&] { thrown = std::current_exception(); });
      next = n;  // nothing more is begun
    }
  };
  std::vector<std::jthread> others;
  try {
    for (size_t w = 1; w < workers; ++w) others.emplace_back(run, static_cast<int>(w));
  } catch (const std::system_error&) {
    // The system gives no more threads; those there are do all the work.
  }
  if (n > 0) run(0);
  others.clear();  // joins
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace kvcodec
